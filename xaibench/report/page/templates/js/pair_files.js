// Pairs from files: of each method, all that stand behind it, as numbers [method, combination, 4].
function loadPairs(data, first, second) {
  const [low, high] = first < second ? [first, second] : [second, first];
  const key = low + " " + high;
  if (data.pairs[key]) return "";
  if (data.files[low] === undefined) {
    data.files[low] = null;
    load(page.slug + "/pairs-" + low, (value) => (data.files[low] = value ? numbersOf(value) : new Float32Array(0)));
  }
  const numbers = data.files[low];
  if (numbers === null) return "Loading\u2026";
  const width = 4 * data.combinations.length;
  const start = (high - low - 1) * width;
  data.pairs[key] = data.combinations.flatMap(([cell, metric], i) => {
    const row = Array.from(numbers.subarray(start + 4 * i, start + 4 * i + 4));
    if (row.length < 4 || row[0] === Infinity) return []; // was not compared
    return [cell, metric, ...row.map((value) => (Number.isNaN(value) ? null : value))];
  });
  return "";
}

function numbersOf(text) {
  const bytes = Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  return new Float32Array(bytes.buffer);
}
