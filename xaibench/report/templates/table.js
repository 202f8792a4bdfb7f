// Sorting and filtering; without scripts the tables are complete, in their first order.
(function () {
  "use strict";

  function value(row, column) {
    const cell = row.cells[column];
    const text = (cell.dataset.v !== undefined ? cell.dataset.v : cell.textContent).trim().replace("\u2212", "-");
    if (text === "" || text === "\u2013") return null;
    const number = Number(text);
    return Number.isNaN(number) ? text : number;
  }

  function compare(a, b) {
    if (typeof a === "number" && typeof b === "number") return a - b;
    return String(a).localeCompare(String(b), "en", { numeric: true });
  }

  function sort(table, heads, head) {
    const ascending = head.getAttribute("aria-sort") !== "ascending";
    const body = table.tBodies[0];
    const keyed = Array.from(body.rows, (row) => [value(row, head.cellIndex), row]);
    keyed.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null); // what is missing stays last
      return ascending ? compare(a, b) : compare(b, a);
    });
    body.append(...keyed.map(([, row]) => row));
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
  }

  document.querySelectorAll("table[data-sortable]").forEach((table) => {
    const heads = table.querySelectorAll("tr[data-head] th");
    heads.forEach((head) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => sort(table, heads, head));
    });
  });

  document.querySelectorAll("form[data-filters]").forEach((form) => {
    const rows = Array.from(document.getElementById(form.dataset.filters).tBodies[0].rows);
    const choices = Array.from(form.querySelectorAll("select"));
    const output = form.querySelector("output");
    function apply() {
      let shown = 0;
      rows.forEach((row) => {
        row.hidden = choices.some((one) => one.value && row.cells[one.dataset.column].textContent.trim() !== one.value);
        shown += row.hidden ? 0 : 1;
      });
      output.textContent = shown + " of " + rows.length + " rows";
    }
    form.hidden = false;
    form.addEventListener("input", apply);
    form.addEventListener("reset", () => setTimeout(apply));
    form.addEventListener("submit", (event) => event.preventDefault());
    apply();
  });
})();
