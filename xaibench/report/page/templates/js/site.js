// A page of the site: the report's parts, and numbers that come in files of their own when they are asked for.
// Scripts and not requests, since a browser reads no other file beside a page that lies in a folder.
const waiting = new Map();

window.xaibenchData = (name, value) => {
  const found = waiting.get(name);
  if (found) found(value);
};

// Loads data/NAME.js once; calls back with what is in it, or with null where there is no such file.
function load(name, then) {
  if (waiting.has(name)) return;
  const script = make("script", { src: page.root + "data/" + name + ".js" });
  const done = (value) => {
    script.remove();
    then(value);
    show();
  };
  waiting.set(name, done);
  script.addEventListener("error", () => done(null));
  document.head.append(script);
}

const failed = new Set();

// What to say while the leaderboards of a choice are not there; nothing where they are.
function waitFor(key) {
  const truths = Object.values(page.truths);
  if (!page.choices.includes(key) || truths.some((truth) => truth.boards[key])) return "";
  if (failed.has(key)) return "The numbers of this choice could not be loaded.";
  load(page.slug + "/cells-" + key, (value) => {
    if (!value) failed.add(key);
    Object.entries(value || {}).forEach(([truth, board]) => (page.truths[truth].boards[key] = board));
  });
  return "Loading\u2026";
}

// The maps of the two methods that the reader has chosen, in the cells that the reader has chosen.
function makeMaps(table, form) {
  listeners.push(() => {
    const chosenTwo = ["first", "second"].map((name) => page.explainers.findIndex((one) => one.name === form.elements[name].value));
    const rows = Array.from(table.tBodies[0].rows);
    rows.forEach((row, i) => {
      const chosen = Object.entries(page.shown[i]).every(([kind, name]) => !choice(kind) || choice(kind) === name);
      row.hidden = !chosen || !chosenTwo.some((place) => page.pictured[place]?.includes(i));
    });
    table.hidden = rows.every((row) => row.hidden);
    const heads = table.tHead.rows[0].cells;
    chosenTwo.forEach((place, i) => (heads[3 + i].textContent = page.explainers[place]?.label ?? ""));
    table.querySelectorAll("[data-of]").forEach((tile) => {
      const place = chosenTwo[tile.dataset.of === "first" ? 0 : 1];
      const file = page.pictured[place]?.includes(rows.indexOf(tile.closest("tr"))) ? page.sprites[place] : "";
      tile.style.backgroundImage = file ? 'url("' + page.root + file + '")' : "";
      tile.setAttribute("aria-label", (file ? "Maps of " : "No maps of ") + (page.explainers[place]?.label ?? "") + ", " + tile.dataset.words);
    });
  });
}

const themeButton = document.getElementById("theme");
const boardTables = Array.from(document.querySelectorAll("[data-truth] .board"));
const suiteForm = document.getElementById("suite-form");
const pairsView = document.getElementById("pairs-view");
const pairsMaps = document.getElementById("pairs-maps");
makeTheme(themeButton);
document.querySelectorAll("form[data-filters]").forEach(makeFilters);
if (boardTables.length) makeBoards(boardTables, waitFor);
document.querySelectorAll("table[data-sortable]").forEach(makeSortable);
if (pairsView) makePairs(pairsView, loadPairs);
if (pairsMaps) makeMaps(pairsMaps, document.getElementById("pairs-form"));
if (suiteForm) {
  suiteForm.hidden = false;
  suiteForm.addEventListener("submit", (event) => {
    event.preventDefault();
    location.href = suiteForm.elements.suite.value;
  });
}
start();
