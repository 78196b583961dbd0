// Draws every figure of the page from the JSON beside it: responsive, light or dark, and for a phone's width.
"use strict";

(() => {
  const NARROW_PIXELS = 640;
  const EXPORT_SIZE = { width: 960, height: 600 };
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const drawn = new Map();

  // Replaces, everywhere in a figure, each colour that has another one on a dark page.
  function recolour(value, replacements) {
    if (typeof value === "string") return replacements[value] ?? value;
    if (Array.isArray(value)) return value.map((item) => recolour(item, replacements));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, recolour(item, replacements)]));
  }

  // On a page the title and the key are text around the figure; a phone has no room for labels at line ends.
  function fit(figure, isNarrow) {
    const { title, ...layout } = figure.layout;
    if (!isNarrow) return { data: figure.data, layout };
    const annotations = layout.annotations.filter((annotation) => annotation.name !== "end-label");
    const font = { ...layout.font, size: 12 };
    return { data: figure.data, layout: { ...layout, annotations, font, margin: { ...layout.margin, r: 14 } } };
  }

  function draw(target, figure) {
    const isNarrow = target.clientWidth < NARROW_PIXELS;
    const fitted = fit(figure, isNarrow);
    const shown = dark.matches ? recolour(fitted, figure.layout.meta.dark) : fitted;
    const config = { displayModeBar: false, responsive: false, scrollZoom: false, doubleClick: false };
    target.querySelector(".plot-wait")?.remove();
    return window.Plotly.react(target, shown.data, { ...shown.layout, width: target.clientWidth }, config);
  }

  // An exported picture stands alone: title, subtitle and key inside, on white, at a fixed size.
  function download(figure, name) {
    const margin = { ...figure.layout.margin, t: figure.layout.meta.export_top };
    const layout = { ...figure.layout, ...EXPORT_SIZE, autosize: false, margin };
    return window.Plotly.downloadImage({ data: figure.data, layout }, { format: "svg", filename: name, ...EXPORT_SIZE });
  }

  function setUp() {
    for (const target of document.querySelectorAll(".plot[data-figure]")) {
      if (drawn.has(target)) continue;
      const figure = JSON.parse(document.getElementById(target.dataset.figure).textContent);
      drawn.set(target, figure);
      observer.observe(target);
      for (const button of document.querySelectorAll(`button[data-download="${target.dataset.figure}"]`)) {
        button.addEventListener("click", () => download(figure, target.dataset.name));
      }
    }
  }

  const observer = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      if (target.isConnected) draw(target, drawn.get(target));
      else drawn.delete(target);
    }
  });

  dark.addEventListener("change", () => drawn.forEach((figure, target) => draw(target, figure)));
  document.addEventListener("otboard:replaced", setUp);
  setUp();
})();
