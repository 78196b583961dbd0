// The upload form beyond a plain form: a file is dropped on it, looked at before it is sent, and sent with progress.
// The server checks everything again; without this script the form is sent as any other.
"use strict";

(() => {
  const form = document.querySelector("form[data-upload]");
  if (!form) return;

  const KNOWN_ENDINGS = [".csv", ".csv.gz", ".csv.zst", ".jsonl", ".jsonl.gz", ".parquet"];
  const KEYS = ["model", "benchmark", "question_id"];
  const FIRST_BYTES = 64 * 1024;
  const FIRST_ROWS = 50;
  const MAX_LABEL = 64;
  const MAX_NOTES = 6;
  const MEBIBYTE = 2 ** 20;
  const MAGIC = { ".parquet": [0x50, 0x41, 0x52, 0x31], ".gz": [0x1f, 0x8b], ".zst": [0x28, 0xb5, 0x2f, 0xfd] };

  const input = form.elements.file;
  const notes = document.getElementById("file-notes");
  const outcome = document.getElementById("outcome");
  const upload = document.getElementById("upload");
  const bar = upload.querySelector("progress");
  const words = upload.querySelector("[data-upload-words]");

  // A file dropped anywhere on the zone is the file of the form.
  function setUpDropping() {
    const zone = form.querySelector("[data-drop]");
    const mark = (event) => {
      if (![...event.dataTransfer.types].includes("Files")) return;
      event.preventDefault();
      zone.classList.toggle("over", event.type === "dragover");
    };
    for (const kind of ["dragenter", "dragover", "dragleave"]) zone.addEventListener(kind, mark);
    zone.addEventListener("drop", (event) => {
      mark(event);
      if (event.dataTransfer.files.length === 0) return;
      const chosen = new DataTransfer();
      chosen.items.add(event.dataTransfer.files[0]);
      input.files = chosen.files;
      input.dispatchEvent(new Event("change"));
    });
  }

  // What is said here never keeps a file from being sent, but for what no server can take: too large, empty.
  async function lookAtFile() {
    const file = input.files[0];
    notes.replaceChildren();
    input.setCustomValidity("");
    if (!file) return;
    const refusal = findRefusal(file);
    input.setCustomValidity(refusal);
    const found = refusal ? [refusal] : await lookInside(file, form.elements.strategy.value);
    if (input.files[0] !== file) return;
    if (found.length === 0) {
      notes.append(paragraph("hint", `${file.name}, ${size(file.size)}: nothing wrong at first sight. The server checks every row.`));
      return;
    }
    const list = document.createElement("ul");
    for (const note of found.slice(0, MAX_NOTES)) list.append(Object.assign(document.createElement("li"), { textContent: note }));
    notes.append(paragraph("", `${file.name}, ${size(file.size)}: look at this before you send it.`), list);
  }

  function findRefusal(file) {
    const limit = Number(form.dataset.limit);
    if (file.size === 0) return "The file is empty.";
    if (file.size > limit) {
      return `The file has ${size(file.size)}; the server takes at most ${size(limit)}. Parquet takes a small part of what CSV takes.`;
    }
    return "";
  }

  async function lookInside(file, strategy) {
    const name = file.name.toLowerCase();
    const ending = KNOWN_ENDINGS.filter((known) => name.endsWith(known)).pop();
    if (!ending) {
      return [`The name ends in none of ${KNOWN_ENDINGS.join(", ")}: the ending says how the file is read.`];
    }
    const bytes = new Uint8Array(await file.slice(0, FIRST_BYTES).arrayBuffer());
    const packed = ending.slice(ending.lastIndexOf("."));
    if (packed in MAGIC) {
      const fits = MAGIC[packed].every((byte, place) => bytes[place] === byte);
      return fits ? [] : [`The name ends in ${packed}, but the file does not begin like one.`];
    }
    if (bytes[0] === 0xff || bytes[0] === 0xfe || bytes.slice(0, 200).includes(0)) {
      return ["The file is not UTF-8 text (UTF-16?). Save it as “CSV UTF-8”."];
    }
    const text = new TextDecoder().decode(bytes).replace(/^\ufeff/, "");
    const lines = text.split(/\r\n|\n|\r/);
    // The last line may have been cut by the look at the beginning only.
    if (file.size > FIRST_BYTES) lines.pop();
    return ending === ".csv" ? lookAtCsv(lines, strategy) : lookAtJson(lines, strategy);
  }

  function lookAtCsv(lines, strategy) {
    const start = lines.findIndex((line) => line.trim() !== "");
    if (start < 0) return ["The file has no rows."];
    const header = splitRow(lines[start]);
    if (header.length === 1 && /[;\t|]/.test(lines[start])) {
      return ["The columns are separated by something else than commas. Save the file with commas."];
    }
    const found = lookAtColumns(header, strategy);
    if (found.length > 0) return found;
    let rows = 0;
    for (let place = start + 1; place < lines.length && rows < FIRST_ROWS; place += 1) {
      if (lines[place].trim() === "") continue;
      rows += 1;
      const values = splitRow(lines[place]);
      if (values.length !== header.length) {
        found.push(`Row ${place + 1} has ${values.length} values, the header ${header.length}.`);
        continue;
      }
      found.push(...lookAtRow(Object.fromEntries(header.map((name, at) => [name, values[at]])), place + 1, strategy));
    }
    if (rows === 0) found.push("The file has a header and no rows.");
    return found;
  }

  function lookAtJson(lines, strategy) {
    const found = [];
    let rows = 0;
    for (let place = 0; place < lines.length && rows < FIRST_ROWS; place += 1) {
      if (lines[place].trim() === "") continue;
      rows += 1;
      let row = null;
      try {
        row = JSON.parse(lines[place]);
      } catch {
        return [`Line ${place + 1} is not JSON. JSON Lines has one object on each line${lines[place].trim().startsWith("[") ? ", without the brackets of a list" : ""}.`];
      }
      if (typeof row !== "object" || row === null || Array.isArray(row)) return [`Line ${place + 1} is not a JSON object.`];
      if (rows === 1) found.push(...lookAtColumns(Object.keys(row), strategy));
      if (found.length === 0) found.push(...lookAtRow(row, place + 1, strategy));
    }
    return rows === 0 ? ["The file has no rows."] : found;
  }

  function lookAtColumns(names, strategy) {
    const exits = strategy === "dynamic_early_exit";
    const value = exits && names.includes("stop_tokens") ? "stop_tokens" : "action";
    const needed = exits ? [...KEYS, "trajectory", value] : [...KEYS, value];
    const found = needed
      .filter((name) => !names.includes(name))
      .map((name) => `The column ${name} is missing${name === "trajectory" ? ": in early exit every trajectory has its own action" : ""}.`);
    for (const name of names) {
      if (needed.includes(name) || name === "setting") continue;
      const plain = name.trim().toLowerCase().replace(/[\s-]+/g, "_");
      if (name === "") found.push("A column has no name (an index, or a comma too many?).");
      else if (!exits && (plain === "trajectory" || plain === "stop_tokens")) {
        found.push(`The column ${name} is of early-exit files only. Is the strategy right?`);
      } else if (needed.includes(plain) || plain === "setting") found.push(`The column “${name}” must be written ${plain}.`);
      else found.push(`The column “${name}” is not one of an action file.`);
    }
    return found;
  }

  function lookAtRow(row, number, strategy) {
    const found = [];
    const name = "stop_tokens" in row ? "stop_tokens" : "action";
    for (const column of "trajectory" in row ? ["trajectory", name] : [name]) {
      const value = Number(row[column]);
      if (row[column] === null || String(row[column]).trim() === "" || !Number.isInteger(value)) {
        found.push(`Row ${number}: ${column} “${row[column]}” is not a whole number.`);
      } else if (value < 0) found.push(`Row ${number}: ${column} ${row[column]} is negative.`);
      else if (strategy === "dynamic_routing" && value > 1) {
        found.push(`Row ${number}: the action of dynamic routing is 0 (no thinking) or 1 (full thinking), not ${row[column]}.`);
      }
    }
    if ("setting" in row && String(row.setting).length > MAX_LABEL) {
      found.push(`Row ${number}: the setting’s label is longer than ${MAX_LABEL} characters.`);
    }
    return found;
  }

  function splitRow(line) {
    const values = [];
    let value = "";
    let isQuoted = false;
    for (let at = 0; at < line.length; at += 1) {
      const character = line[at];
      if (character === '"' && isQuoted && line[at + 1] === '"') {
        value += character;
        at += 1;
      } else if (character === '"') isQuoted = !isQuoted;
      else if (character === "," && !isQuoted) {
        values.push(value);
        value = "";
      } else value += character;
    }
    return [...values, value];
  }

  // The form is sent by the script for its progress; what the server answers is the page it would answer anyway.
  function send(event) {
    event.preventDefault();
    const request = new XMLHttpRequest();
    const isCheck = event.submitter?.hasAttribute("data-check") ?? false;
    const fields = new FormData(form, event.submitter ?? undefined);
    const file = input.files[0];
    let sent = 0;
    let total = file ? file.size : 0;
    show(`Sending ${file ? size(total) : ""}…`, 0);
    outcome.replaceChildren();
    setBusy(true);
    request.upload.addEventListener("progress", (progress) => {
      [sent, total] = [progress.loaded, progress.total];
      const share = total > 0 ? sent / total : 1;
      const isWhole = sent >= total;
      const waiting = isCheck ? "Sent. Every row is being checked…" : "Sent. It is being stored…";
      show(isWhole ? waiting : `${size(sent)} of ${size(total)} sent, ${Math.floor(100 * share)} %`, isWhole && isCheck ? null : share);
    });
    request.addEventListener("load", () => {
      setBusy(false);
      showAnswer(request);
    });
    const stopped = (what) => () => {
      setBusy(false);
      const isWhole = total > 0 && sent >= total && !isCheck;
      showFault(what, isWhole
        ? "The whole file had been sent, so it may have arrived: look among your submissions. Sending the same file again is safe, it stays one submission."
        : "Nothing of it was stored. Send it again when you like; the same file is never stored twice.");
    };
    request.addEventListener("error", () => stopped(`The connection broke off after ${size(sent)} of ${size(total)}.`)());
    request.addEventListener("abort", stopped("The upload was cancelled."));
    upload.querySelector("[data-upload-cancel]").onclick = () => request.abort();
    request.open("POST", event.submitter?.getAttribute("formaction") ?? form.getAttribute("action"));
    request.setRequestHeader("Accept", "text/html");
    request.send(fields);
  }

  function showAnswer(request) {
    const address = new URL(request.responseURL, window.location.href);
    if (request.status === 200 && address.pathname.startsWith("/submissions/")) {
      window.location.assign(address.href);
      return;
    }
    const answered = new DOMParser().parseFromString(request.responseText, "text/html").querySelector("[data-outcome]");
    if (!answered) {
      showFault(`The server answered ${request.status || "nothing"}.`, "Nothing was stored. Try again in a moment.");
      return;
    }
    const box = document.createElement("section");
    box.className = request.status === 200 ? "notice good" : "notice bad";
    box.append(...document.importNode(answered, true).childNodes);
    // The page has its own first heading.
    for (const heading of box.querySelectorAll("h1")) {
      heading.replaceWith(Object.assign(document.createElement("h2"), { textContent: heading.textContent }));
    }
    showOutcome(box);
  }

  function showFault(what, remedy) {
    const box = document.createElement("section");
    box.className = "notice bad";
    box.append(Object.assign(document.createElement("h2"), { textContent: what }), paragraph("", remedy));
    showOutcome(box);
  }

  function showOutcome(box) {
    outcome.replaceChildren(box);
    outcome.focus({ preventScroll: true });
    outcome.scrollIntoView({ block: "start" });
    document.dispatchEvent(new CustomEvent("otboard:added", { detail: outcome }));
  }

  function show(text, share) {
    words.textContent = text;
    if (share === null) bar.removeAttribute("value");
    else bar.value = share;
  }

  // Leaving the page would break the upload off, so the browser asks first.
  const hold = (event) => event.preventDefault();

  function setBusy(isBusy) {
    upload.hidden = !isBusy;
    if (isBusy) window.addEventListener("beforeunload", hold);
    else window.removeEventListener("beforeunload", hold);
    for (const button of form.querySelectorAll(".actions button")) button.disabled = isBusy;
  }

  function paragraph(className, text) {
    return Object.assign(document.createElement("p"), { className, textContent: text });
  }

  function size(bytes) {
    if (bytes >= MEBIBYTE) return `${(bytes / MEBIBYTE).toFixed(1)} MiB`;
    return bytes >= 1024 ? `${(bytes / 1024).toFixed(1)} KiB` : `${bytes} bytes`;
  }

  setUpDropping();
  input.addEventListener("change", lookAtFile);
  form.elements.strategy.addEventListener("change", lookAtFile);
  form.addEventListener("submit", send);
  // A browser that goes back keeps the chosen file.
  lookAtFile();
})();
