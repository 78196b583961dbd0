// What the pages do beyond links and forms; each of them works without this script.
"use strict";

(() => {
  const POLL_MILLISECONDS = 1500;
  const REFRESH_MILLISECONDS = 2000;
  const TERMINAL = new Set(["scored", "withheld", "published", "rejected", "failed", "withdrawn"]);

  // A view's pickers apply at once. Empty choices stay out of the address, and another snapshot has its own splits,
  // models and benchmarks, so choosing one lets go of those of the old.
  function setUpPickers(root) {
    for (const form of root.querySelectorAll("form.filters")) leaveOutEmpty(form);
    for (const form of root.querySelectorAll("form[data-pickers]")) {
      form.addEventListener("change", (event) => {
        if (event.target.name === "snapshot") {
          for (const name of ["split", "model", "benchmark"]) {
            if (form.elements[name]) form.elements[name].disabled = true;
          }
        }
        form.requestSubmit();
      });
      leaveOutEmpty(form);
    }
  }

  function leaveOutEmpty(form) {
    form.addEventListener("formdata", (event) => {
      for (const [name, value] of [...event.formData]) {
        if (value === "") event.formData.delete(name);
      }
    });
  }

  // A row of the board opens in place: what it says is fetched once it is asked for.
  function setUpRows(root) {
    for (const link of root.querySelectorAll("a[data-open]")) {
      link.addEventListener("click", (event) => {
        if (event.ctrlKey || event.metaKey || event.shiftKey) return;
        event.preventDefault();
        toggleRow(link);
      });
    }
  }

  async function toggleRow(link) {
    const id = link.dataset.open;
    let detail = document.getElementById(`detail-${id}`);
    if (!detail) {
      const row = document.getElementById(`row-${id}`);
      const answer = await fetch(`/board-rows/${id}${window.location.search}`, { headers: { Accept: "text/html" } });
      if (!answer.ok) {
        window.location.assign(link.href);
        return;
      }
      detail = row.cloneNode(false);
      detail.id = `detail-${id}`;
      detail.className = "detail";
      const cell = document.createElement("td");
      cell.colSpan = row.children.length;
      const parsed = new DOMParser().parseFromString(await answer.text(), "text/html");
      cell.replaceChildren(...document.importNode(parsed.body, true).childNodes);
      detail.append(cell);
      row.after(detail);
    }
    link.setAttribute("aria-expanded", String(detail.classList.toggle("open")));
  }

  function setUpCopying(root) {
    for (const button of root.querySelectorAll("button[data-copy]")) {
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent.trim());
        button.textContent = "Copied";
      });
    }
  }

  // A table goes to the clipboard as a spreadsheet takes it. Where there is no clipboard (plain http to another host) the
  // table is marked, so that the reader can copy it.
  function setUpTableCopying(root) {
    for (const button of root.querySelectorAll("button[data-copy-table]")) {
      button.addEventListener("click", async () => {
        const table = button.closest("table");
        const rows = [...table.querySelectorAll("thead tr, tbody tr")].map((row) =>
          [...row.cells].map((cell) => cell.textContent.trim().replace(/\s+/g, " ")).join("\t"));
        if (navigator.clipboard) {
          await navigator.clipboard.writeText(rows.join("\n"));
          button.textContent = "Copied";
        } else {
          window.getSelection().selectAllChildren(table);
          button.textContent = "Marked: copy it with your keyboard";
        }
      });
    }
  }

  // A one-time link's code stands behind the # of its address, which never leaves the browser by itself. It is put into
  // the form and taken out of the address, and the reader decides to send it.
  function setUpCode(root) {
    const field = root.querySelector("input[data-code-field]");
    const code = window.location.hash.slice(1);
    if (!field || !/^[A-Za-z0-9_-]{40,60}$/.test(code)) return;
    field.value = code;
    window.history.replaceState(null, "", window.location.pathname + window.location.search);
  }

  // A submission that is being scored is followed by its REST resource; once anything changed, the page is fetched
  // again and its main part put in place, so that there is one way in which a state is shown.
  async function follow(main) {
    const watched = main.querySelector("[data-follow]");
    if (!watched) return;
    let seen = watched.dataset.seen;
    for (;;) {
      await new Promise((resolve) => setTimeout(resolve, POLL_MILLISECONDS));
      try {
        const answer = await fetch(watched.dataset.follow, { headers: { Accept: "application/json" } });
        if (!answer.ok) continue;
        const state = await answer.json();
        const now = [state.state, state.queue_place ?? "", state.attempts, state.progress ?? "", state.worker_alive].join(" ");
        if (now === seen) continue;
        seen = now;
        await replaceMain(main);
        if (TERMINAL.has(state.state)) return;
      } catch (error) {
        // The server may be restarting; the next round asks again.
        if (!(error instanceof TypeError)) throw error;
      }
    }
  }

  async function replaceMain(main) {
    const fresh = await fetchPage();
    if (fresh) putInPlace(main, fresh);
  }

  async function fetchPage() {
    const answer = await fetch(window.location.href, { headers: { Accept: "text/html" } });
    if (!answer.ok) return null;
    return new DOMParser().parseFromString(await answer.text(), "text/html");
  }

  // Whoever works with the keyboard keeps the place on the page.
  function putInPlace(main, fresh) {
    const focused = main.contains(document.activeElement) ? document.activeElement.id : "";
    main.replaceChildren(...document.importNode(fresh.querySelector("main"), true).childNodes);
    document.title = fresh.title;
    setUp(main);
    if (focused) document.getElementById(focused)?.focus();
    document.dispatchEvent(new CustomEvent("otboard:replaced"));
  }

  // A page that changes as long as work goes on is fetched anew, and put in place where anything is different.
  async function refresh(main) {
    let shown = "";
    while (main.querySelector("[data-refresh]")) {
      await new Promise((resolve) => setTimeout(resolve, REFRESH_MILLISECONDS));
      if (document.hidden) continue;
      try {
        const fresh = await fetchPage();
        const content = fresh?.querySelector("main").innerHTML ?? shown;
        if (content !== shown) putInPlace(main, fresh);
        shown = content;
      } catch (error) {
        if (!(error instanceof TypeError)) throw error;
      }
    }
  }

  function setUp(root) {
    setUpPickers(root);
    setUpRows(root);
    setUpCopying(root);
    setUpTableCopying(root);
    setUpCode(root);
  }

  setUp(document);
  document.addEventListener("otboard:added", (event) => setUp(event.detail));
  follow(document.querySelector("main"));
  refresh(document.querySelector("main"));
})();
