// Light, dark, or as the system has it; remembered where the browser lets a page remember.
function makeTheme(button) {
  const names = { "": "Colors: system", light: "Colors: light", dark: "Colors: dark" };
  const remembered = (value) => {
    try {
      if (value === undefined) return localStorage.getItem("xaibench-theme") || "";
      localStorage.setItem("xaibench-theme", value);
    } catch {
      // no storage for this page
    }
    return "";
  };
  function put(theme) {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    button.textContent = names[theme] || names[""];
  }
  button.hidden = false;
  put(remembered());
  button.addEventListener("click", () => {
    const order = Object.keys(names);
    const next = order[(order.indexOf(document.documentElement.dataset.theme || "") + 1) % order.length];
    remembered(next);
    put(next);
  });
}
