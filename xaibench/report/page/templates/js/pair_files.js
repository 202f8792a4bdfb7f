// Pairs from files: of each method, all with methods behind it.
function loadPairs(data, first, second) {
  const low = Math.min(first, second);
  if (data.files[low] === undefined) {
    data.files[low] = false;
    load(page.slug + "/pairs-" + low, (value) => {
      Object.assign(data.pairs, value);
      data.files[low] = true;
    });
  }
  return data.files[low] ? "" : "Loading\u2026";
}
