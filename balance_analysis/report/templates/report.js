"use strict";
(() => {
  const FEW = 10;

  // Numbers of a column have the same number of decimals, so their digits alone tell their order:
  // twice what they say, for there to be room for what is less or more than that.
  const toNumber = (text) => {
    if (!/\d/.test(text)) return null;
    const digits = 2n * BigInt(text.replace(/[^\d-]/g, ""));
    return digits + ({ "<": -1n, ">": 1n }[text[0]] ?? 0n);
  };
  const compareText = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

  const keyOf = (cell, isNumber) => {
    const text = cell.textContent.trim();
    if (isNumber) return toNumber(text);
    return text === "" || text === "–" ? null : text;
  };

  const compare = (a, b, sign) => {
    if (a === null || b === null) return (a === null) - (b === null);
    return sign * compareText(a, b);
  };

  const sortBy = (table, head, place) => {
    const isNumber = head.classList.contains("n");
    const old = head.getAttribute("aria-sort");
    const descends = old ? old === "ascending" : isNumber;
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", descends ? "descending" : "ascending");
    const body = table.tBodies[0];
    const rows = Array.from(body.rows, (row) => [keyOf(row.cells[place], isNumber), row]);
    rows.sort(([a], [b]) => compare(a, b, descends ? -1 : 1));
    body.append(...rows.map(([, row]) => row));
  };

  const makeSortable = (table) => {
    Array.from(table.tHead.rows[0].cells).forEach((head, place) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      button.addEventListener("click", () => sortBy(table, head, place));
      head.append(button);
    });
  };

  const textOf = (row) => {
    const full = Array.from(row.querySelectorAll("[title]"), (part) => part.title);
    return [row.textContent, ...full].join("\n").toLowerCase();
  };

  const makeFilter = (table) => {
    const rows = Array.from(table.tBodies[0].rows);
    if (rows.length <= FEW) return;
    const line = document.createElement("div");
    const label = document.createElement("label");
    const input = document.createElement("input");
    const count = document.createElement("output");
    line.className = "filter";
    input.type = "search";
    input.placeholder = "id, type, date …";
    input.autocomplete = "off";
    label.append("Filter ", input);
    const show = () => {
      const wanted = input.value.trim().toLowerCase();
      let shown = 0;
      for (const row of rows) {
        row.hidden = wanted !== "" && !textOf(row).includes(wanted);
        shown += !row.hidden;
      }
      const all = rows.length.toLocaleString("en");
      count.value = wanted ? `${shown.toLocaleString("en")} of ${all} rows` : `${all} rows`;
    };
    input.addEventListener("input", show);
    line.append(label, count);
    table.closest(".sheet").prepend(line);
    show();
  };

  // What is copied has whole ids, whatever the page has room for.
  document.addEventListener("copy", (event) => {
    const selection = document.getSelection();
    if (!selection.rangeCount || selection.isCollapsed) return;
    const holder = selection.anchorNode.parentElement?.closest(".id");
    const whole = holder?.contains(selection.focusNode) ? holder.title : null;
    let text = whole;
    if (!text) {
      const inside = Array.from(document.querySelectorAll(".id")).filter((id) =>
        selection.containsNode(id, true),
      );
      text = inside.reduce((said, id) => said.replace(id.textContent, () => id.title), selection.toString());
    }
    event.clipboardData.setData("text/plain", text);
    event.preventDefault();
  });

  // Who has no mouse scrolls a box with the keys once it has the focus.
  const boxes = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const scrolls =
        target.scrollWidth > target.clientWidth || target.scrollHeight > target.clientHeight;
      if (scrolls) target.tabIndex = 0;
      else target.removeAttribute("tabindex");
    }
  });

  for (const table of document.querySelectorAll("table")) {
    makeSortable(table);
    makeFilter(table);
  }
  for (const box of document.querySelectorAll(".box")) boxes.observe(box);
})();
