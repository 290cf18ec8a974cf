// On every page: tab stops for what scrolls sideways, and cards for terms and sources.
(() => {
  "use strict";

  // What scrolls must be reached by Tab, or a keyboard sees its left end only. What fits
  // is no stop.
  const BOXES = [
    "pre",
    ".cell_output > .output",
    ".pst-scrollable-table-container",
    "div.math > mjx-container",
  ];
  const SCROLLS = `#main-content :is(${BOXES.join(", ")})`;

  function setStop(box) {
    const equation = box.localName === "mjx-container"; // its height is never cut
    const tall = !equation && box.scrollHeight > box.clientHeight;
    if (tall || box.scrollWidth > box.clientWidth) {
      box.setAttribute("tabindex", "0");
      if (!equation) return;
      box.setAttribute("role", "group");
      box.setAttribute("aria-label", "Equation that scrolls sideways");
    } else if (box.hasAttribute("tabindex")) {
      ["tabindex", "role", "aria-label"].forEach((name) => box.removeAttribute(name));
    }
  }

  // An observer is called for what is laid out. The rest is asked one at a time when the
  // page has nothing else to do: all at once would take a phone most of a second.
  const seen = new Set();
  const sizes = new ResizeObserver((entries) => {
    entries.forEach((entry) => setStop(entry.target));
  });
  const whenIdle = window.requestIdleCallback || ((done) => setTimeout(done, 50));

  function watch() {
    const found = [...document.querySelectorAll(SCROLLS)].filter((box) => !seen.has(box));
    found.forEach((box) => seen.add(box) && sizes.observe(box));
    const next = () => {
      if (!found.length) return;
      setStop(found.shift());
      whenIdle(next);
    };
    whenIdle(next);
  }

  watch();
  // Equations and what an explorer shows come later.
  const main = document.getElementById("main-content") || document.body;
  new MutationObserver(watch).observe(main, { childList: true, subtree: true });

  // A card is shown while the pointer is on its link or on itself, or the link has the
  // focus, until Escape. A finger never opens one: a tap follows the link.
  const LINK = 'a[aria-describedby^="card-"]';
  const GAP = 6; // px between a link and its card
  let shown = null; // {link, card}
  let timer = 0;

  function hide() {
    clearTimeout(timer);
    if (shown) shown.card.hidden = true;
    shown = null;
  }

  function show(link) {
    if (shown && shown.link === link) return;
    hide();
    const card = document.getElementById(link.getAttribute("aria-describedby"));
    card.hidden = false;
    card.style.left = card.style.top = "0";
    const zero = card.getBoundingClientRect();
    const at = link.getClientRects()[0];
    const room = document.documentElement.clientWidth - zero.width - 8;
    const below = at.bottom + GAP;
    const fits = below + zero.height <= innerHeight || at.top < zero.height + GAP;
    const top = fits ? below : at.top - zero.height - GAP;
    card.style.left = `${Math.max(8, Math.min(at.left, room)) - zero.left}px`;
    card.style.top = `${top - zero.top}px`;
    shown = { link, card };
  }

  function later(act, milliseconds) {
    clearTimeout(timer);
    timer = setTimeout(act, milliseconds);
  }

  document.addEventListener("pointerover", (event) => {
    if (event.pointerType === "touch") return;
    const link = event.target.closest(LINK);
    if (link) later(() => show(link), 150);
    else if (shown && shown.card.contains(event.target)) clearTimeout(timer);
    else if (!shown || shown.link !== document.activeElement) later(hide, 200);
  });
  document.addEventListener("focusin", (event) => {
    const link = event.target.closest(LINK);
    if (link && link.matches(":focus-visible")) show(link);
    else hide();
  });
  document.addEventListener("focusout", hide);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
  });
})();
