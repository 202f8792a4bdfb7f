// The reader's choices live in the address, #SECTION?name=value&…: a link keeps them, and "back" undoes them.
const page = JSON.parse(document.getElementById("page-data").textContent);
const listeners = [];
let section = "";
let choices = new URLSearchParams();

function readAddress() {
  const [name, query] = location.hash.slice(1).split(/\?(.*)/s);
  let decoded = name;
  try {
    decoded = decodeURIComponent(name);
  } catch {
    decoded = ""; // a broken link: the top of the page
  }
  return [decoded, new URLSearchParams(query || "")];
}

function address(name, params) {
  const query = params.toString();
  return "#" + encodeURIComponent(name) + (query ? "?" + query : "");
}

function choice(name) {
  return choices.get(name) || "";
}

// Take over changes {name: value}, "" for none. Small steps replace the entry of the history instead of adding one.
function choose(changes, { at = section, small = false } = {}) {
  const next = new URLSearchParams(choices);
  Object.entries(changes).forEach(([name, value]) => (value ? next.set(name, value) : next.delete(name)));
  const url = address(at, next);
  if (url === address(section, choices)) return;
  try {
    history[small ? "replaceState" : "pushState"](null, "", url);
  } catch {
    // A page in a sandbox has no history; it works without links.
  }
  section = at;
  choices = next;
  show();
}

function show() {
  listeners.forEach((listener) => listener());
  document.querySelectorAll("nav a").forEach((link) => {
    link.dataset.section = link.dataset.section || link.getAttribute("href").slice(1);
    link.setAttribute("href", address(link.dataset.section, choices));
  });
}

function arrive() {
  const [name, params] = readAddress();
  const moved = name !== section;
  if (!moved && params.toString() === choices.toString()) return;
  section = name;
  choices = params;
  show();
  const target = moved && document.getElementById(name);
  if (!target) return;
  const closed = target.closest("details");
  if (closed) closed.open = true;
  target.scrollIntoView();
}

function start() {
  window.addEventListener("popstate", arrive);
  window.addEventListener("hashchange", arrive);
  // It moves the focus, and leaves the choices in the address as they are.
  document.querySelector("a.skip").addEventListener("click", (event) => {
    event.preventDefault();
    document.getElementById("main").focus();
  });
  [, choices] = readAddress(); // what a link asks for is shown at once, and nothing else is loaded before
  show();
  arrive();
}

function make(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

const formats = new Map();

// As the page was written: halves go to the even digit, the minus is a true one, and there is none before a zero.
function formatted(value, digits) {
  if (value === null || value === undefined) return "\u2013";
  if (!formats.has(digits)) {
    const options = { minimumFractionDigits: digits, maximumFractionDigits: digits, useGrouping: false };
    formats.set(digits, new Intl.NumberFormat("en", { ...options, roundingMode: "halfEven", signDisplay: "negative" }));
  }
  return formats.get(digits).format(value).replace("-", "\u2212");
}
