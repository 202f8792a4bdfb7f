// Sorting and filtering; without scripts the tables are complete, in their first order.
function valueOf(row, column) {
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

function order(table, heads, wanted) {
  const descending = wanted.startsWith("-");
  const head = heads.find((one) => keyOf(one) === wanted.slice(descending ? 1 : 0));
  const body = table.tBodies[0];
  const keyed = Array.from(body.rows, (row) => [head ? valueOf(row, head.cellIndex) : Number(row.dataset.order), row]);
  keyed.sort(([a], [b]) => {
    if (a === null || b === null) return (a === null) - (b === null); // what is missing stays last
    return descending ? compare(b, a) : compare(a, b);
  });
  body.append(...keyed.map(([, row]) => row));
  heads.forEach((other) => other.removeAttribute("aria-sort"));
  if (head) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
}

function keyOf(head) {
  return head.dataset.key || String(head.cellIndex);
}

function makeSortable(table) {
  const name = table.dataset.sortable;
  const heads = Array.from(table.querySelectorAll("tr[data-head] th"));
  const at = table.closest("section").getAttribute("aria-labelledby");
  Array.from(table.tBodies[0].rows).forEach((row, number) => (row.dataset.order = number));
  heads.forEach((head) => {
    const button = make("button", { type: "button" }, ...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const now = head.getAttribute("aria-sort");
      const down = now ? now === "ascending" : head.dataset.first === "down";
      choose({ [name]: (down ? "-" : "") + keyOf(head) }, { at });
    });
  });
  let shown = "";
  listeners.push(() => {
    const wanted = choice(name);
    if (wanted === shown && !table.classList.contains("board")) return;
    shown = wanted;
    order(table, heads, wanted);
  });
}

const FILTERS = ["subset", "variant", "model", "metric"];
const KINDS = { subset: "subsets", variant: "variants", model: "models", metric: "metrics" };

// The place of the reader's choice among what the run has: null for all, -1 for a name that it does not have.
function chosen(name) {
  const value = choice(name);
  return value ? page[KINDS[name]].findIndex((one) => one.name === value) : null;
}

// A button that opens the filters on a phone, where they are closed at first.
function makeDrawer(form) {
  const button = make("button", { type: "button", className: "drawer", textContent: "Filters", ariaExpanded: "false" });
  button.addEventListener("click", () => {
    button.ariaExpanded = String(form.classList.toggle("open"));
  });
  return button;
}

function makeFilters(form) {
  const at = form.closest("section").getAttribute("aria-labelledby");
  const selects = Array.from(form.querySelectorAll("select"));
  const all = [...FILTERS, "controls"];
  const clear = () => choose(Object.fromEntries(all.map((name) => [name, ""])), { at });
  const valueOfInput = (input) => (input.type === "checkbox" ? (input.checked ? "" : "off") : input.value);
  form.hidden = false;
  form.before(makeDrawer(form));
  form.addEventListener("input", ({ target }) => choose({ [target.name]: valueOfInput(target) }, { at }));
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", (event) => {
    event.preventDefault();
    clear();
  });
  form.closest("section").querySelectorAll("[data-reset]").forEach((button) => button.addEventListener("click", clear));
  listeners.push(() => {
    selects.forEach((select) => (select.value = choice(select.name)));
    if (form.elements.controls) form.elements.controls.checked = choice("controls") !== "off";
    form.querySelector("button").disabled = !all.some(choice);
  });
}
