// Draws every figure of the page from the JSON beside it, or at the address it names: responsive, light or dark, and
// for a phone's width. A line and the row of its method light up together.
"use strict";

(() => {
  const NARROW_PIXELS = 640;
  const EXPORT_SIZE = { width: 960, height: 600 };
  const LEGEND_PIXELS = 60;
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
    if (layout.meta.narrow_places) return { data: figure.data, layout: placePanels(layout, layout.meta.narrow_places) };
    const annotations = layout.annotations.filter((annotation) => annotation.name !== "end-label");
    const font = { ...layout.font, size: 12 };
    return { data: figure.data, layout: { ...layout, annotations, font, margin: { ...layout.margin, r: 14 } } };
  }

  // A phone has its panels in one column.
  function placePanels(layout, places) {
    const placed = { ...layout };
    places.forEach((place, idx) => {
      const number = idx === 0 ? "" : idx + 1;
      placed[`xaxis${number}`] = { ...layout[`xaxis${number}`], domain: place.x };
      placed[`yaxis${number}`] = { ...layout[`yaxis${number}`], domain: place.y };
    });
    let panel = 0;
    placed.annotations = layout.annotations.map((annotation) => {
      if (annotation.name !== "panel-title") return annotation;
      const place = places[panel];
      panel += 1;
      return { ...annotation, x: place.x[0], y: place.y[1] };
    });
    return placed;
  }

  function draw(target, figure) {
    const isNarrow = target.clientWidth < NARROW_PIXELS;
    const fitted = fit(figure, isNarrow);
    const shown = dark.matches ? recolour(fitted, figure.layout.meta.dark) : fitted;
    const config = { displayModeBar: false, responsive: false, scrollZoom: false, doubleClick: false };
    target.querySelector(".plot-wait")?.remove();
    const isFirst = !target.on;
    const done = window.Plotly.react(target, shown.data, { ...shown.layout, width: target.clientWidth }, config);
    if (isFirst) followPointer(target);
    done.then(() => performance.mark("otboard:drawn"));
    return done;
  }

  // Whoever points at a line sees its row, and whoever points at a row, or comes to it by keyboard, sees its line.
  function followPointer(target) {
    const findRow = (event) => event.points.map((point) => point.data.meta?.row).find(Boolean);
    target.on("plotly_hover", (event) => markRow(findRow(event), true));
    target.on("plotly_unhover", (event) => markRow(findRow(event), false));
  }

  function markRow(id, isMarked) {
    if (id) document.getElementById(`row-${id}`)?.classList.toggle("linked", isMarked);
  }

  function markLines(id) {
    for (const target of drawn.keys()) {
      const linked = (target._fullData ?? []).filter((trace) => id && trace.meta?.row === id).map((trace) => trace.uid);
      target.classList.toggle("linking", linked.length > 0);
      for (const line of target.querySelectorAll(".scatterlayer .trace")) {
        line.classList.toggle("linked", linked.some((uid) => line.classList.contains(`trace${uid}`)));
      }
    }
  }

  const findId = (event) => event.target.closest?.("tr[id^='row-']")?.id.slice("row-".length);

  // An exported picture stands alone: title, subtitle and key inside, on white, at a fixed size.
  function download(figure, name) {
    const { export_top: top, export_height: height, narrow_places: panels } = figure.layout.meta;
    const size = { ...EXPORT_SIZE, height: height ?? EXPORT_SIZE.height };
    const margin = { ...figure.layout.margin, t: top };
    if (panels) margin.b += LEGEND_PIXELS;
    const layout = { ...figure.layout, ...size, autosize: false, margin, showlegend: Boolean(panels) };
    return window.Plotly.downloadImage({ data: figure.data, layout }, { format: "svg", filename: name, ...size });
  }

  const readNote = (text) => (text ?? "").replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");

  // A number stays one; a text that a spreadsheet would run as a formula gets an apostrophe.
  function writeField(value) {
    if (typeof value !== "string") return value ?? "";
    const text = readNote(value).replace(/^[=+\-@\t\r]/, "'$&");
    return `"${text.replaceAll('"', '""')}"`;
  }

  // Every point that is drawn, line by line; what has no name is the edge of an interval.
  function writeNumbers({ data, layout }) {
    const nameAxis = (axis, fallback) => layout[axis]?.title?.text ?? fallback;
    const rows = [["Line", nameAxis("xaxis", "x"), nameAxis("yaxis", layout.annotations?.[0]?.text ?? "y")]];
    for (const trace of data.filter(({ name, x }) => name && x)) {
      const places = trace.type === "bar" && Array.isArray(trace.text) ? trace.text : trace.x;
      places.forEach((place, idx) => rows.push([trace.name, place, trace.y[idx]]));
    }
    return `${rows.map((row) => row.map(writeField).join(",")).join("\r\n")}\r\n`;
  }

  function saveNumbers(figure, name) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([writeNumbers(figure)], { type: "text/csv;charset=utf-8" }));
    link.download = `${name}.csv`;
    link.click();
    URL.revokeObjectURL(link.href);
  }

  function setUpButtons(target, figure) {
    const whole = `[data-download="${target.dataset.figure}"]`;
    const numbers = `[data-numbers="${target.dataset.figure}"]`;
    for (const button of document.querySelectorAll(`button${whole}, button${numbers}`)) {
      const save = button.matches(whole) ? download : saveNumbers;
      button.addEventListener("click", () => save(figure, target.dataset.name));
    }
  }

  async function read(target) {
    const inline = document.getElementById(target.dataset.figure);
    if (inline) return JSON.parse(inline.textContent);
    const answer = await fetch(target.dataset.source);
    if (!answer.ok) throw new Error(`${target.dataset.source} answered ${answer.status}`);
    return answer.json();
  }

  async function show(target) {
    let figure;
    try {
      figure = await read(target);
    } catch {
      const wait = target.querySelector(".plot-wait");
      if (wait) wait.textContent = "The plot could not be loaded. Its figures are in the table below.";
      drawn.delete(target);
      return;
    }
    drawn.set(target, figure);
    observer.observe(target);
    setUpButtons(target, figure);
  }

  function setUp() {
    for (const target of document.querySelectorAll(".plot[data-figure]")) {
      if (drawn.has(target)) continue;
      drawn.set(target, null);
      show(target);
    }
  }

  const observer = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      if (!target.isConnected) drawn.delete(target);
      else if (drawn.get(target)) draw(target, drawn.get(target));
    }
  });

  dark.addEventListener("change", () => drawn.forEach((figure, target) => figure && draw(target, figure)));
  for (const name of ["pointerover", "focusin"]) {
    document.addEventListener(name, (event) => markLines(findId(event)));
  }
  document.addEventListener("otboard:replaced", setUp);
  setUp();
})();
