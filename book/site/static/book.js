// On every page, before the search and the theme start.

// From file:// a browser reads no other file, so search shows titles without excerpts.
if (location.protocol === "file:") {
  DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
}
