// Answers what a keyboard cannot reach on a page, or reaches without showing it.
() => {
  const natives = "a[href], button:not(:disabled), input:not([type=hidden]):not(:disabled), select, textarea, summary";
  const tell = (found, fault) => `${fault}: ${found.outerHTML.slice(0, 120)}`;
  const isVisible = (found) => found.checkVisibility({ visibilityProperty: true });
  const faults = [];
  // What a script alone moves the focus to has -1 and nothing to act on.
  const stops = [...document.querySelectorAll(`${natives}, [tabindex]:not([tabindex="-1"])`)].filter(isVisible);
  for (const stop of stops) {
    // The one of a group of radio buttons that is chosen is the group's only stop.
    if (stop.type === "radio" && !stop.checked) continue;
    if (stop.tabIndex !== 0) {
      faults.push(tell(stop, "out of the keyboard's order"));
      continue;
    }
    stop.focus({ preventScroll: true });
    const shown = [stop, ...stop.children, stop.closest("label")].filter(Boolean).map((part) => getComputedStyle(part));
    if (document.activeElement !== stop) faults.push(tell(stop, "takes no focus"));
    else if (!shown.some((style) => style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0)) {
      faults.push(tell(stop, "does not show the focus"));
    }
  }
  document.activeElement.blur();
  for (const found of [...document.querySelectorAll("main *")].filter(isVisible)) {
    const style = getComputedStyle(found);
    const scrolls = ["auto", "scroll"].includes(style.overflowX) && found.scrollWidth > found.clientWidth + 1;
    if (scrolls && found.tabIndex !== 0 && !found.querySelector(natives)) faults.push(tell(found, "scrolls by pointer alone"));
    if (style.cursor === "pointer" && !found.closest(`${natives}, label, [tabindex], .plot`)) {
      faults.push(tell(found, "takes a pointer alone"));
    }
  }
  return faults;
}
