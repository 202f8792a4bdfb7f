// The browser of samples: failures of a method first, each with all maps and scores.
function makeSamples(view) {
  const form = view.querySelector("form");
  const list = document.getElementById("samples-list");
  const tiles = document.getElementById("samples-tiles");
  const all = document.getElementById("samples-all");
  const at = "examples";
  const gallery = JSON.parse(document.getElementById("gallery-data").textContent);
  const parsed = [];
  const shown = { cell: "", sample: "", all: "" };
  let ordered = [];

  function cellOf(index) {
    parsed[index] = parsed[index] || JSON.parse(document.getElementById("samples-" + index).textContent);
    return parsed[index];
  }

  // What the address asks for; where it asks for nothing, what fits the filters of the leaderboard.
  function asked() {
    const fits = (one) => ["subset", "variant", "model"].every((kind) => !choice(kind) || one[kind] === choice(kind));
    let index = gallery.findIndex((one) => one.name === choice("cell"));
    if (index < 0) index = Math.max(gallery.findIndex(fits), 0);
    const cell = cellOf(index);
    const known = (name) => cell.explainers.includes(name);
    const method = [choice("of"), page.leader, cell.explainers[0]].find(known);
    const named = [choice("by"), choice("metric")].map((name) => page.metrics.findIndex((one) => one.name === name));
    const metric = Math.max(named.find((place) => place >= 0) ?? 0, 0);
    return { index, cell, method, metric, outlined: choice("outline") !== "no" };
  }

  function worstFirst(cell, metric, explainer) {
    const ranks = cell.ranks[metric][explainer];
    const order = cell.samples.map((_, i) => i);
    return order.sort((a, b) => (ranks[a] ?? Infinity) - (ranks[b] ?? Infinity) || cell.samples[a] - cell.samples[b]);
  }

  function ordinal(number) {
    const tens = Math.floor((number % 100) / 10);
    return number + (tens === 1 ? "th" : ["th", "st", "nd", "rd"][number % 10] || "th");
  }

  function standing(cell, metric, explainer, i) {
    const rank = cell.ranks[metric][explainer][i];
    const of = cell.valid[metric][explainer];
    if (rank === null) return "undefined";
    return (rank === 1 ? "worst" : ordinal(rank) + " worst") + " of " + of;
  }

  function score(cell, metric, explainer, i) {
    return formatted(cell.scores[metric][explainer][i], 3);
  }

  function labelOf(kind, name) {
    return page[kind].find((one) => one.name === name)?.label ?? name;
  }

  function showList({ cell, method, metric }) {
    const explainer = cell.explainers.indexOf(method);
    ordered = worstFirst(cell, metric, explainer);
    const options = ordered.map((i) => {
      const canvas = make("canvas", { ariaHidden: "true" });
      const words = score(cell, metric, explainer, i);
      const option = make("div", { className: "thumb", tabIndex: -1 }, canvas, make("span", { textContent: words }));
      option.setAttribute("role", "option");
      option.setAttribute("aria-label", cell.labels[i] + ", " + words + ", " + standing(cell, metric, explainer, i));
      option.dataset.sample = cell.samples[i];
      option.addEventListener("click", () => go(cell.samples[i]));
      picture(cell.images[i]).then((image) => {
        const small = cell.volume ? slicesOf(cell, pixels(image, 0, image.naturalWidth), cell.volume.slices[i]) : image;
        fill(sized(canvas, small.naturalWidth ?? small.width, small.naturalHeight ?? small.height), small);
      });
      return option;
    });
    list.replaceChildren(...options);
    const worst = cell.worst[metric][explainer];
    const rest = worst > 1 ? ", including the " + worst + " worst" : worst ? ", including the worst" : ", without the worst";
    document.getElementById("samples-note").textContent =
      cell.samples.length + " of " + cell.of + " scored samples of " + cell.label + ", sorted by " + page.metrics[metric].label +
      " of " + labelOf("explainers", method) + (cell.samples.length < cell.of ? rest : "") + ".";
  }

  function tile(name, caption, extra = "") {
    const canvas = make("canvas", {});
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", name);
    const figure = make("figure", { className: "tile" + extra }, canvas, make("figcaption", {}, ...caption));
    return [figure, canvas];
  }

  function line(className, textContent) {
    return make("span", { className, textContent });
  }

  // What the network makes of a sample.
  function answer(cell, i) {
    if (!cell.predicted.length) return [];
    const wrong = cell.predicted[i] !== cell.classes[i];
    const share = formatted(100 * cell.probabilities[i], 1) + " %";
    return [
      line("standing", "label: " + cell.classes[i]),
      line(wrong ? "standing flag" : "standing", "predicted: " + cell.predicted[i] + ", " + share),
    ];
  }

  function slicesOf(cell, stack, slices) {
    return onCanvas(sliced(stack, cell.volume.sides, slices));
  }

  // The slices of a volume, and sliders that change them; none for an image.
  function showSliders(cell, i, changed) {
    const slices = cell.volume ? [...cell.volume.slices[i]] : [];
    const sliders = slices.map((start, axis) => {
      const side = cell.volume.sides[axis];
      const output = make("output", {});
      const name = ["slice d", "row h", "column w"][axis];
      const input = make("input", { type: "range", min: 0, max: side - 1, value: start, ariaLabel: name });
      const say = () => {
        const place = Math.floor(((slices[axis] + 0.5) * cell.volume.shape[axis]) / side);
        output.textContent = name + " = " + place;
        input.setAttribute("aria-valuetext", place);
      };
      input.addEventListener("input", () => {
        slices[axis] = Number(input.value);
        say();
        changed();
      });
      say();
      return make("label", {}, input, output);
    });
    document.getElementById("samples-slices")?.remove();
    if (sliders.length) tiles.before(make("div", { id: "samples-slices", className: "slices" }, ...sliders));
    return slices;
  }

  function showSample({ cell, method, metric, outlined, i }) {
    const [imageTile, imageCanvas] = tile("The image", [line("name", "Image"), ...answer(cell, i)], " given");
    const [maskTile, maskCanvas] = tile("The ground truth", [line("name", "Ground truth")], " given");
    const maps = page.explainers.filter((one) => cell.explainers.includes(one.name)).map((one) => {
      const e = cell.explainers.indexOf(one.name);
      const others = page.metrics.filter((one) => one.raw === undefined).length > 3 ? [] : page.metrics.flatMap((other, k) =>
        k === metric || other.raw !== undefined ? [] : [line("other", other.label + " " + score(cell, k, e, i))]);
      const caption = [
        line("name", one.label),
        line("score", score(cell, metric, e, i)),
        line("standing", standing(cell, metric, e, i)),
        ...others,
      ];
      const [figure, canvas] = tile("Map of " + one.label, caption, (one.control ? " is-control" : "") + (one.own ? " is-own" : "") + (one.name === method ? " is-chosen" : ""));
      return { figure, canvas, e, label: one.label };
    });
    tiles.classList.toggle("volumes", Boolean(cell.volume));
    tiles.replaceChildren(imageTile, maskTile, ...maps.map(({ figure }) => figure));
    document.getElementById("samples-title").textContent = cell.labels[i];
    let paint = () => {};
    const slices = showSliders(cell, i, () => paint());
    Promise.all([cell.images[i], cell.masks[i], cell.maps[i]].map(picture)).then(([image, maskImage, sprite]) => {
      const whole = pixels(maskImage, 0, maskImage.naturalWidth);
      const width = sprite.naturalWidth / cell.explainers.length;
      const stacks = maps.map(({ e }) => pixels(sprite, e * width, width));
      const stack = cell.volume && pixels(image, 0, image.naturalWidth);
      paint = () => {
        const cut = (given) => (cell.volume ? sliced(given, cell.volume.sides, slices) : given);
        const mask = cut(whole);
        const shownImage = cell.volume ? slicesOf(cell, stack, slices) : image;
        const draw = (canvas, what, under) => {
          const size = under ?? what;
          const context = sized(canvas, size.naturalWidth ?? size.width, size.naturalHeight ?? size.height);
          if (under) fill(context, under);
          fill(context, what, under ? 0.6 : 1);
          if (outlined) outline(context, mask);
        };
        draw(imageCanvas, shownImage);
        fill(sized(maskCanvas, mask.width, mask.height), cell.volume ? onCanvas(mask) : maskImage);
        maps.forEach(({ canvas, label }, number) => {
          const levels = cut(stacks[number]);
          draw(canvas, colored(levels), cell.overlay ? shownImage : null);
          canvas.setAttribute("aria-label", "Map of " + label + ", " + peak(levels, mask));
        });
      };
      paint();
    });
  }

  function showAll({ cell, i }) {
    const head = make("tr", {}, make("th", { scope: "col", textContent: "Method" }), ...page.metrics.map((one) =>
      make("th", { scope: "col", className: "n", textContent: one.label })));
    const rows = page.explainers.filter((one) => cell.explainers.includes(one.name)).map((one) => {
      const e = cell.explainers.indexOf(one.name);
      const cells = page.metrics.map((_, k) => make("td", { className: "n", textContent: score(cell, k, e, i), title: standing(cell, k, e, i) }));
      return make("tr", { className: one.control ? "is-control" : "" }, make("th", { scope: "row", textContent: one.label }), ...cells);
    });
    const caption = make("caption", { className: "hidden", textContent: "All scores of " + cell.labels[i] });
    all.querySelector("div").replaceChildren(make("table", {}, caption, make("thead", {}, head), make("tbody", {}, ...rows)));
  }

  function go(sample, focus = false) {
    choose({ sample: String(sample), cell: gallery[asked().index].name }, { at, small: true });
    if (focus) list.querySelector('[aria-selected="true"]').focus();
  }

  function step(by, focus = false) {
    const now = ordered.indexOf(current(asked()));
    const next = ordered[Math.min(Math.max(now + by, 0), ordered.length - 1)];
    go(asked().cell.samples[next], focus);
  }

  function current({ cell }) {
    const i = cell.samples.findIndex((sample) => String(sample) === choice("sample"));
    return i < 0 ? ordered[0] : i;
  }

  function render() {
    const now = asked();
    form.elements.cell.value = gallery[now.index].name;
    form.elements.of.value = now.method;
    form.elements.by.value = page.metrics[now.metric].name;
    form.elements.outline.checked = now.outlined;
    const key = [now.index, now.method, now.metric].join("\n");
    if (key !== shown.cell) showList(now);
    const i = current(now);
    if (key + i + now.outlined !== shown.sample) {
      showSample({ ...now, i });
      if (all.open) showAll({ ...now, i });
    }
    shown.cell = key;
    shown.sample = key + i + now.outlined;
    const place = ordered.indexOf(i);
    Array.from(list.children).forEach((option, number) => {
      option.setAttribute("aria-selected", String(number === place));
      option.tabIndex = number === place ? 0 : -1;
    });
    const option = list.children[place];
    list.scrollLeft += option.getBoundingClientRect().left - list.getBoundingClientRect().left - list.clientWidth / 3;
    document.getElementById("samples-place").textContent = place + 1 + " of " + ordered.length;
    document.getElementById("samples-previous").disabled = place === 0;
    document.getElementById("samples-next").disabled = place === ordered.length - 1;
  }

  view.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", ({ target }) => {
    if (target.name === "outline") choose({ outline: target.checked ? "" : "no" }, { at, small: true });
    else choose({ [target.name]: target.value, sample: "" }, { at });
  });
  list.addEventListener("keydown", (event) => {
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity };
    if (!(event.key in steps) || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    step(steps[event.key], true);
  });
  document.getElementById("samples-previous").addEventListener("click", () => step(-1));
  document.getElementById("samples-next").addEventListener("click", () => step(1));
  all.addEventListener("toggle", () => {
    const now = asked();
    if (all.open) showAll({ ...now, i: current(now) });
  });
  listeners.push(render);
}
