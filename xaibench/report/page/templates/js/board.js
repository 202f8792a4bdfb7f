// The leaderboards of the reader's choice: all numbers are worked out before, this only puts them in their places.
function makeBoards(tables, boardsOf) {
  const output = tables[0].closest("section").querySelector("form[data-filters] output");
  const boards = tables.map(makeBoard);
  listeners.push(() => {
    const wanted = ["subset", "variant", "model"].map(chosen);
    const key = wanted.map((one, kind) => (one === null || kindsOf(kind) < 2 ? (one === -1 ? -1 : "") : one)).join(".");
    const metric = chosen("metric");
    const waits = boardsOf && boardsOf(key); // a site has the numbers of a choice in a file of their own
    if (waits) {
      if (output.textContent !== waits) output.textContent = waits;
      return;
    }
    const text = boards.map((show) => show(key, metric)).find(Boolean); // the first that has something to show
    document.getElementById("board-empty").hidden = Boolean(text);
    if (output.textContent !== (text || "No cell fits the filters")) output.textContent = text || "No cell fits the filters";
  });

  function kindsOf(kind) {
    return page[["subsets", "variants", "models"][kind]].length;
  }
}

// A leaderboard of one kind of truth; gives what shows some cells (by key) and one metric (or null, all) of it.
function makeBoard(table) {
  const rows = new Map(Array.from(table.tBodies[0].rows, (row) => [row.dataset.e, row]));
  const block = table.closest("[data-truth]");
  const { own, ranked: names, boards } = page.truths[block.dataset.truth];
  const wide = table.classList.contains("details");

  function put(row, key, metric, text, value) {
    const of = metric === null ? "" : '[data-m="' + metric + '"]';
    const cell = row.querySelector('[data-k="' + key + '"]' + of);
    if (!cell) return null; // a table may leave a column out
    cell.querySelector(".v").textContent = text;
    cell.dataset.v = value === null ? "" : value;
    return cell;
  }

  function putShare(row, key, metric, part, whole) {
    const cell = put(row, key, metric, whole ? part : "\u2013", whole ? part : null);
    if (!cell) return;
    cell.querySelector(".faint").textContent = whole ? " / " + whole : "";
    cell.style.setProperty("--share", whole ? part / whole : 0);
  }

  function putMetric(row, metric, numbers, scale, median) {
    const [rank, mean, low, high, , best, above, beats, against] = numbers;
    put(row, "mean_rank", metric, formatted(rank, 2), rank);
    put(row, "median", metric, formatted(median, 3), median);
    put(row, "best", metric, formatted(best, 0), best);
    putShare(row, "above", metric, above, against);
    putShare(row, "beats", metric, beats, against);
    const flag = row.querySelector('[data-k="mean_rank"][data-m="' + metric + '"] .flag');
    if (flag) flag.hidden = !against || beats > 0;
    const cell = put(row, "mean", metric, formatted(mean, 3), mean);
    if (!cell) return;
    cell.querySelector("small").textContent = low === null ? "" : formatted(low, 3) + " \u2013 " + formatted(high, 3);
    const whisker = cell.querySelector(".whisker");
    whisker.hidden = mean === null;
    [["--low", low ?? mean], ["--mean", mean], ["--high", high ?? mean]].forEach(([name, value]) => {
      whisker.style.setProperty(name, mean === null ? 0 : scale(value));
    });
  }

  // From the lowest to the highest end of an interval of the column to 0 ... 1.
  function scaleOf(lines) {
    const ends = lines.filter(Boolean).flatMap(([, mean, low, high]) => [low ?? mean, high ?? mean]);
    const known = ends.filter((value) => value !== null);
    const least = Math.min(...known);
    const span = Math.max(...known) - least || 1;
    return (value) => Math.round(1000 * ((value - least) / span)) / 1000;
  }

  function showColumns(metric) {
    table.classList.toggle("details", wide || metric !== null);
    table.classList.toggle("one", metric !== null);
    table.querySelectorAll("[data-m]").forEach((cell) => {
      cell.hidden = metric !== null && Number(cell.dataset.m) !== metric;
    });
    table.querySelectorAll("th.group").forEach((head) => (head.colSpan = shownColumns(head.dataset.m)));
  }

  // Of a metric's own columns those that stand there; a head is never of none.
  function shownColumns(metric) {
    const own = Array.from(table.querySelectorAll('tr[data-head] [data-m="' + metric + '"]'));
    return Math.max(own.filter((head) => getComputedStyle(head).display !== "none").length, 1);
  }

  return (key, metric) => {
    const board = metric === null || own.includes(metric) ? boards[key] : undefined;
    block.hidden = !board;
    if (!board) return "";
    table.classList.toggle("some-cells", key !== "..");
    showColumns(metric);
    return fill(board, metric) + " methods in " + board.cells + " of " + boards[".."].cells + " cells";
  };

  // Returns how many explainers are shown.
  function fill(board, metric) {
    const over = board.over[metric === null || board.over.length === 1 ? 0 : own.indexOf(metric) + 1];
    const scales = board.metrics.map(scaleOf);
    const ranked = names.map((name, i) => [name, over[i], i]);
    ranked.sort(([, a], [, b]) => (a ? a[3] : Infinity) - (b ? b[3] : Infinity));
    const without = choice("controls") === "off";
    ranked.forEach(([name, line, i], place) => {
      const row = rows.get(name);
      row.hidden = !line || (without && row.classList.contains("is-control"));
      row.dataset.order = place;
      if (!line) return;
      const [where, cells, of, rank, sampleRank] = line;
      put(row, "place", null, where === null ? "\u2013" : where, where);
      row.classList.toggle("is-first", where === 1);
      const note = row.querySelector('[data-k="cells"]');
      note.hidden = cells >= of;
      note.textContent = " " + cells + " of " + of + " cells";
      put(row, "rank", null, formatted(rank, 2), rank);
      put(row, "sample_rank", null, formatted(sampleRank, 2), sampleRank);
      const nothing = [null, null, null, null, null, null, 0, 0, 0];
      // Beside a skill stands the score that it is of.
      const median = (k) => (board.metrics[own.indexOf(page.metrics[k].raw ?? k)][i] || nothing)[4];
      board.metrics.forEach((lines, j) => putMetric(row, own[j], lines[i] || nothing, scales[j], median(own[j])));
    });
    return ranked.filter(([name]) => !rows.get(name).hidden).length;
  }
}
