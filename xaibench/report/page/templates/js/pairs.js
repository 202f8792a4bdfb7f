// Two methods of the reader's choice: a sentence per metric, and every cell that matches the filters.
// A site has the pairs in files: loadPairs returns a message until those of two methods are loaded.
function makePairs(view, loadPairs) {
  const data = JSON.parse(document.getElementById("pairs-data").textContent);
  const form = document.getElementById("pairs-form");
  const body = document.getElementById("pairs-table").tBodies[0];
  const verdict = document.getElementById("pairs-verdict");
  const output = view.querySelector("form[data-filters] output");
  const at = "pairs";
  const places = page.explainers.map((one) => one.name);
  const has = (a, b) => data.pairs[a + " " + b] || data.pairs[b + " " + a];

  // The user's own method or the first of the leaderboard, and the next one that it was compared with.
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
    if (p === null || p >= data.level) return "not significant";
    return difference > 0 === page.metrics[metric].higher ? "better" : "worse";
  }

  // Two methods by one metric in a sentence: the difference over all cells, and in how many cells it is significant.
  function sentence(one, other, metric, rows, overall) {
    const known = rows.filter((row) => row.metric === metric && row.difference !== null);
    const count = (words) => known.filter((row) => said(row) === words).length;
    const [better, worse, label] = [count("better"), count("worse"), page.metrics[metric].label];
    const cells = " of " + known.length + (known.length === 1 ? " cell" : " cells");
    if (!overall) {
      return "In " + label + ", " + one + " is significantly better than " + other + " in " + better + " and worse in " + worse + cells + ".";
    }
    const sign = Math.sign(overall.difference) || 1;
    const ends = sign > 0 ? [overall.low, overall.high] : [-overall.high, -overall.low];
    const range = overall.low === null ? "" : " [" + formatted(ends[0], 3) + ", " + formatted(ends[1], 3) + "]";
    const by = formatted(Math.abs(overall.difference), 3) + range;
    const words = said(overall);
    if (words === "not significant") {
      return one + " and " + other + " do not differ significantly in " + label + " (difference " + signed(overall.difference) +
        (overall.low === null ? "" : " [" + formatted(overall.low, 3) + ", " + formatted(overall.high, 3) + "]") + "); " +
        one + " is significantly better in " + better + " and worse in " + worse + cells + ".";
    }
    const [same, opposite] = words === "better" ? [better, worse] : [worse, better];
    return one + " is " + words + " than " + other + " by " + by + " in " + label + "; significant in " + same + cells +
      (opposite ? ", and the opposite in " + opposite : "") + ".";
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
    const every = compared(first, second);
    const all = every.filter((row) => row.cell);
    const rows = all.filter(fits);
    const ends = rows.flatMap((row) => [row.low, row.high, row.difference, 0]).filter((value) => value !== null);
    const [least, most] = [Math.min(...ends), Math.max(...ends)];
    body.replaceChildren(...rows.map((row) => line(row, least, most)));
    const [one, other] = [first, second].map((place) => page.explainers[place].label);
    // The difference over all cells is stated only where all cells are selected.
    const whole = !["subset", "variant", "model"].some(choice);
    const overall = (metric) => (whole ? every.find((row) => !row.cell && row.metric === metric) : undefined);
    const metrics = [...new Set(rows.map((row) => row.metric))];
    const behind = page.metrics.map((metric) => metric.raw); // scores that a skill stands for
    const leading = metrics.filter((metric) => !behind.includes(metric));
    const sentences = (leading.length ? leading : metrics).map((metric) => sentence(one, other, metric, rows, overall(metric)));
    const none = one + " and " + other + " were not compared" + (data.whole ? " in a cell that matches." : " on this page; comparisons.csv has every pair.");
    verdict.replaceChildren(...(sentences.length ? sentences : [none]).map((textContent) => make("p", { textContent })));
    output.textContent = rows.length + " of " + all.length + " comparisons";
  }

  view.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", ({ target }) => choose({ [target.name]: target.value }, { at }));
  document.getElementById("pairs-swap").addEventListener("click", () => {
    const [first, second] = asked();
    choose({ first: places[second], second: places[first] }, { at });
  });
  listeners.push(render);
}
