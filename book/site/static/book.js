// On every page, before the search and the theme start.

// From file:// a browser reads no other file, so search shows titles without excerpts.
if (location.protocol === "file:") {
  DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
}

// The theme asks every code block and table whether it scrolls when a page opens, laid
// out or not: most of a second on a phone for a long page. It is told of none, and
// reading.js sees to them.
document.querySelectorAll = function (selectors) {
  const stops = String(selectors).startsWith("pre, .nboutput");
  return Document.prototype.querySelectorAll.call(this, stops ? ":not(*)" : selectors);
};
