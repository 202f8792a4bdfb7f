/* Two changes of the theme: the search index is loaded when the search is opened, and copy buttons have names. */
(() => {
  let load;
  const opened = new Promise((done) => { load = done; });
  for (const kind of ["focusin", "pointerover"]) {
    document.addEventListener(kind, (event) => event.target.closest?.(".md-search, [for=__search]") && load());
  }
  if (/[?&][hq]=/.test(location.search)) load(); // a link from a search result, or to one

  const isIndex = (address) => /search\/search_index\.js(on)?$/.test(String(address));
  const { open, send } = XMLHttpRequest.prototype; // used if there is a server
  XMLHttpRequest.prototype.open = function (method, address, ...rest) {
    this.isIndex = isIndex(address);
    return open.call(this, method, address, ...rest);
  };
  XMLHttpRequest.prototype.send = function (body) {
    if (this.isIndex) opened.then(() => send.call(this, body));
    else send.call(this, body);
  };
  const append = document.head.appendChild; // used if the site is opened from the disk
  document.head.appendChild = function (node) {
    if (!isIndex(node.src ?? "")) return append.call(this, node);
    opened.then(() => append.call(document.head, node));
    return node;
  };

  let count = 0;
  new MutationObserver(() => {
    for (const group of document.querySelectorAll(".md-code__nav:not([aria-label])")) {
      group.setAttribute("aria-label", `Code block ${++count}`);
    }
  }).observe(document, { childList: true, subtree: true });
})();
