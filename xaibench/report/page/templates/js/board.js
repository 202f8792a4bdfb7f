// The leaderboards of the reader's choice: all numbers are computed before, this only puts them in their places.
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
    const shown = new Set(boards.flatMap((show) => show(key, metric)));
    const fits = (cell) => cell.every((one, kind) => wanted[kind] === null || wanted[kind] === one);
    const count = page.cells.filter(fits).length;
    const text = shown.size ? shown.size + " methods, " + count + " of " + page.cells.length + " cells" : "No cell matches the filters";
    document.getElementById("board-empty").hidden = shown.size > 0;
    if (output.textContent !== text) output.textContent = text;
  });

  function kindsOf(kind) {
    return page[["subsets", "variants", "models"][kind]].length;
  }
}

// Returns a function that shows a selection of cells (by key) and one metric (null: all) of a leaderboard, and returns
// the names of the methods in it.
function makeBoard(table) {
  const rows = new Map(Array.from(table.tBodies[0].rows, (row) => [row.dataset.e, row]));
  const block = table.closest("[data-truth]");
  const { own, ranking, ranked: names, boards } = page.truths[block.dataset.truth];
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
  }

  // Puts the ranks that a method may have, such as 1–4, and the mark of methods that are not ahead of the controls.
  function putPlace(row, key, metric, first, last, ahead) {
    const text = first === null ? "\u2013" : first === last ? String(first) : first + "\u2013" + last;
    const cell = put(row, key, metric, text, first);
    const flag = cell && cell.querySelector(".flag");
    if (flag) flag.hidden = ahead !== 0;
  }

  function putMetric(row, metric, numbers, scale, median) {
    const [, first, last, , , mean, low, high, n, , beats, against, ahead] = numbers;
    putPlace(row, "first", metric, first, last, ahead);
    put(row, "median", metric, formatted(median, 3), median);
    put(row, "n", metric, formatted(n, 0), n);
    putShare(row, "beats", metric, beats, against);
    const cell = put(row, "mean", metric, formatted(mean, 3), mean);
    if (!cell) return;
    const without = mean === null ? "" : "no interval*";
    cell.querySelector("small").textContent = low === null ? without : formatted(low, 3) + " \u2013 " + formatted(high, 3);
    const whisker = cell.querySelector(".whisker");
    whisker.hidden = mean === null;
    [["--low", low ?? mean], ["--mean", mean], ["--high", high ?? mean]].forEach(([name, value]) => {
      whisker.style.setProperty(name, mean === null ? 0 : scale(value));
    });
  }

  // The scale of a column: from the lowest to the highest end of its intervals, rounded outwards to a tenth of their range.
  function scaleOf(lines) {
    const ends = lines.filter(Boolean).flatMap((line) => [line[6] ?? line[5], line[7] ?? line[5]]);
    const known = ends.filter((value) => value !== null);
    const step = 10 ** Math.floor(Math.log10(Math.max(...known) - Math.min(...known) || 1));
    const least = Math.floor(Math.min(...known) / step) * step;
    const most = Math.ceil(Math.max(...known) / step) * step;
    const at = (value) => Math.round(1000 * ((value - least) / (most - least || 1))) / 1000;
    return { at, least, most, digits: Math.max(0, -Math.floor(Math.log10(step))) };
  }

  // The numbers below the heading of a column: both ends of its scale, and zero if it is between them.
  function putAxis(metric, { at, least, most, digits }) {
    const axis = table.querySelector('th[data-m="' + metric + '"] .axis');
    if (!axis || !Number.isFinite(least)) return;
    const marks = [least, least < 0 && most > 0 && at(0) > 0.2 && at(0) < 0.8 ? 0 : null, most];
    axis.hidden = false;
    Array.from(axis.children).forEach((mark, i) => {
      mark.textContent = marks[i] === null ? "" : formatted(marks[i], marks[i] === 0 ? 0 : digits);
      mark.style.left = 100 * (marks[i] === null ? 0 : at(marks[i])) + "%";
    });
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
    if (!board) return [];
    table.classList.toggle("some-cells", key !== "..");
    showColumns(metric);
    return fill(board, metric);
  };

  // Returns the names of the methods that are shown.
  function fill(board, metric) {
    // Without a choice, the first metric, unless these cells have no score of it.
    const scored = (number) => board.metrics[number].some(Boolean);
    const by = metric !== null ? own.indexOf(metric) : [ranking, ...own.keys()].find(scored) ?? ranking;
    const scales = board.metrics.map(scaleOf);
    scales.forEach((scale, j) => putAxis(own[j], scale));
    const ranked = names.map((name, i) => [name, board.metrics[by][i], i]);
    ranked.sort(([, a], [, b]) => (a ? a[0] : Infinity) - (b ? b[0] : Infinity));
    const without = choice("controls") === "off";
    ranked.forEach(([name, line, i], place) => {
      const row = rows.get(name);
      row.hidden = !line || (without && row.classList.contains("is-control"));
      row.dataset.order = place;
      if (!line) return;
      const [, first, last, cells, of] = line;
      putPlace(row, "place", null, first, last, line[12]);
      row.classList.toggle("is-first", first === 1);
      const note = row.querySelector('[data-k="cells"]');
      note.hidden = cells >= of;
      note.textContent = " " + cells + " of " + of + " cells";
      const nothing = [null, null, null, 0, 0, null, null, null, null, null, 0, 0, null];
      // The median of a skill is that of the score itself.
      const median = (k) => (board.metrics[own.indexOf(page.metrics[k].raw ?? k)][i] || nothing)[9];
      board.metrics.forEach((lines, j) => putMetric(row, own[j], lines[i] || nothing, scales[j].at, median(own[j])));
    });
    return ranked.map(([name]) => name).filter((name) => !rows.get(name).hidden);
  }
}
