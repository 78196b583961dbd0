// Draws the figures from the JSON beside them when they come near the window: any width, light or dark, and for print.
"use strict";

(() => {
  const NARROW_PIXELS = 480;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const drawn = new Map();

  function recolour(value, replacements) {
    if (typeof value === "string") return replacements[value] ?? value;
    if (Array.isArray(value)) return value.map((item) => recolour(item, replacements));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, recolour(item, replacements)]));
  }

  // The heading stands above the figure; a wide figure on a phone has no room for words beside and between its lines,
  // which the key and the text above it have as well.
  function fit(figure, width, isWide) {
    const { title, ...layout } = figure.layout;
    if (!isWide || width >= NARROW_PIXELS) return { data: figure.data, layout };
    const annotations = layout.annotations
      .filter((annotation) => annotation.name !== "end-label" && annotation.name !== "full-thinking-label");
    return { data: figure.data, layout: { ...layout, annotations, margin: { ...layout.margin, r: 14 } } };
  }

  function draw(target) {
    const figure = drawn.get(target);
    const width = target.clientWidth;
    const fitted = fit(figure, width, target.parentElement.classList.contains("wide"));
    const shown = dark.matches ? recolour(fitted, figure.layout.meta.dark) : fitted;
    const size = { width, height: target.clientHeight };
    window.Plotly.react(target, shown.data, { ...shown.layout, ...size }, { displayModeBar: false, staticPlot: false });
  }

  function start(target) {
    if (drawn.has(target)) return;
    drawn.set(target, JSON.parse(document.getElementById(target.dataset.figure).textContent));
    sizes.observe(target);
  }

  const sizes = new ResizeObserver((entries) => entries.forEach(({ target }) => draw(target)));
  const nearness = new IntersectionObserver(
    (entries) => entries.filter((entry) => entry.isIntersecting).forEach(({ target }) => start(target)),
    { rootMargin: "600px" },
  );
  const targets = [...document.querySelectorAll(".plot")];
  targets.forEach((target) => nearness.observe(target));
  dark.addEventListener("change", () => drawn.forEach((_, target) => draw(target)));
  window.addEventListener("beforeprint", () => targets.forEach((target) => (start(target), draw(target))));
})();
