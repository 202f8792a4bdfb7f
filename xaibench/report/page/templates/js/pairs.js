// Two methods of the reader's choice, in every cell that fits the filters.
// A site has the pairs in files: loadPairs says what to say while those of two methods are not there.
function makePairs(view, loadPairs) {
  const data = JSON.parse(document.getElementById("pairs-data").textContent);
  const form = document.getElementById("pairs-form");
  const body = document.getElementById("pairs-table").tBodies[0];
  const verdict = document.getElementById("pairs-verdict");
  const output = view.querySelector("form[data-filters] output");
  const at = "pairs";
  const places = page.explainers.map((one) => one.name);
  const has = (a, b) => data.pairs[a + " " + b] || data.pairs[b + " " + a];

  // The user's own method, or the first of the leaderboard, beside the next that it was compared with.
  function asked() {
    const preferred = [choice("first"), data.subject].map((name) => places.indexOf(name));
    const first = preferred.find((place) => place >= 0);
    const others = [choice("second"), ...data.order].map((name) => places.indexOf(name));
    const there = (place) => loadPairs || has(first, place) || choice("second");
    const second = others.find((place) => place >= 0 && place !== first && there(place));
    return [first, second];
  }

  // Rows {cell, metric, difference, low, high, p} of first minus second.
  function compared(first, second) {
    const turned = !data.pairs[first + " " + second];
    const flat = has(first, second) || [];
    return Array.from({ length: flat.length / 6 }, (_, i) => {
      const [cell, metric, difference, low, high, p] = flat.slice(6 * i, 6 * i + 6);
      const minus = (value) => (value === null ? null : -value);
      const ends = turned ? [minus(difference), minus(high), minus(low)] : [difference, low, high];
      return { cell: data.cells[cell], metric, difference: ends[0], low: ends[1], high: ends[2], p };
    });
  }

  function fits({ cell, metric }) {
    const place = ["subset", "variant", "model"].every((kind) => !choice(kind) || cell[kind] === choice(kind));
    return place && (!choice("metric") || page.metrics[metric].name === choice("metric"));
  }

  function said({ metric, difference, p }) {
    if (difference === null) return "no sample in common";
    if (p === null || p >= data.level) return "not told apart";
    return difference > 0 === page.metrics[metric].higher ? "better" : "worse";
  }

  function signed(value) {
    return value === null ? "\u2013" : (value > 0 ? "+" : "") + formatted(value, 3);
  }

  function labelOf(kind, name) {
    return page[kind].find((one) => one.name === name)?.label ?? name;
  }

  function line(row, least, most) {
    const small = (textContent) => make("small", { textContent });
    const cell = ["subsets", "variants", "models"].map((kind) => labelOf(kind, row.cell[kind.slice(0, -1)])).filter(Boolean);
    const range = row.low === null ? "" : signed(row.low) + " to " + signed(row.high);
    const drawn = make("i", { className: "whisker about-zero", ariaHidden: "true", hidden: row.difference === null });
    const at = (value) => ((value ?? row.difference ?? 0) - least) / (most - least || 1);
    const ends = { "--low": row.low, "--mean": row.difference, "--high": row.high, "--zero": 0 };
    Object.entries(ends).forEach(([name, value]) => drawn.style.setProperty(name, at(value).toFixed(3)));
    const words = said(row);
    const badge = { better: "badge good", worse: "badge bad" }[words] || "badge";
    const p = row.p === null ? "\u2013" : row.p < 0.001 ? "< 0.001" : formatted(row.p, 3);
    return make("tr", {},
      make("th", { scope: "row" }, cell.join(" \u00b7 "), small(page.metrics[row.metric].label)),
      make("td", { className: "n" }, make("span", { className: "strong", textContent: signed(row.difference) }), small(range)),
      make("td", { className: "interval" }, drawn),
      make("td", { className: "n", textContent: p }),
      make("td", {}, make("span", { className: badge, textContent: words })));
  }

  function render() {
    const [first, second] = asked();
    if (second === undefined) return;
    form.elements.first.value = places[first];
    form.elements.second.value = places[second];
    const waits = loadPairs && loadPairs(data, first, second);
    if (waits) {
      output.textContent = waits;
      return;
    }
    const all = compared(first, second);
    const rows = all.filter(fits);
    const known = rows.filter((row) => row.difference !== null);
    const ends = rows.flatMap((row) => [row.low, row.high, row.difference, 0]).filter((value) => value !== null);
    const [least, most] = [Math.min(...ends), Math.max(...ends)];
    body.replaceChildren(...rows.map((row) => line(row, least, most)));
    const count = (words) => rows.filter((row) => said(row) === words).length;
    const [one, other] = [first, second].map((place) => page.explainers[place].label);
    verdict.textContent = known.length
      ? one + " against " + other + ": better in " + count("better") + " of " + known.length + " comparisons, worse in " +
        count("worse") + ", not told apart in " + count("not told apart") + "."
      : one + " and " + other + " were not compared" + (data.whole ? " in a cell that fits." : " here; comparisons.csv has every pair.");
    output.textContent = rows.length + " of " + all.length + " comparisons";
  }

  view.hidden = false;
  const beside = document.getElementById("pairs-beside");
  if (beside) beside.open = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", ({ target }) => choose({ [target.name]: target.value }, { at }));
  document.getElementById("pairs-swap").addEventListener("click", () => {
    const [first, second] = asked();
    choose({ first: places[second], second: places[first] }, { at });
  });
  listeners.push(render);
}
