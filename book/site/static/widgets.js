// On pages with widgets: load the widget manager when the first widget comes near the
// viewport, then give the controls the names that a screen reader says.
(() => {
  "use strict";
  const EMBED = new URL("html-manager/dist/embed.js", document.currentScript.src);
  const VIEW = 'script[type="application/vnd.jupyter.widget-view+json"]';

  // The manager was written for MathJax 2. One queue, so that calls do not overlap.
  function addMathJaxShim() {
    const MathJax = window.MathJax;
    if (!MathJax || !MathJax.startup || MathJax.Hub) return;
    let last = MathJax.startup.promise;
    const typeset = (element) => {
      last = last.then(() => MathJax.typesetPromise([element])).catch(console.error);
    };
    MathJax.Hub = { Queue: (call) => typeset(call[2]) };
  }

  // embed.js starts on window "load", which is over by now: keep the handler that it
  // registers while it runs, and call it.
  function loadManager() {
    addMathJaxShim();
    const script = document.createElement("script");
    const add = window.addEventListener;
    const handlers = [];
    window.addEventListener = function (type, handler, options) {
      if (type === "load" && document.currentScript === script) handlers.push(handler);
      else add.call(window, type, handler, options);
    };
    script.onload = () => {
      window.addEventListener = add;
      handlers.forEach((handler) => handler());
    };
    script.src = EMBED;
    document.head.append(script);
  }

  // Writing an attribute that has the value already would call the observer for ever.
  function setAttribute(element, name, value) {
    if (value && element.getAttribute(name) !== value) element.setAttribute(name, value);
  }

  function labelOf(control) {
    const label = control.querySelector(".widget-label");
    return label ? label.textContent.trim() : "";
  }

  // A slider's handle has no name of its own, and speaks its position, not its value.
  function nameSlider(slider) {
    const readout = slider.querySelector(".widget-readout");
    const handles = [...slider.querySelectorAll(".noUi-handle")];
    const say = () => {
      for (const handle of handles) {
        setAttribute(handle, "aria-label", labelOf(slider));
        if (readout) setAttribute(handle, "aria-valuetext", readout.textContent.trim());
      }
    };
    say();
    // noUiSlider writes aria-valuetext too; whoever comes last, the readout's text stays.
    const observer = new MutationObserver(say);
    for (const handle of handles) {
      observer.observe(handle, { attributes: true, attributeFilter: ["aria-valuetext"] });
    }
    if (!readout) return;
    observer.observe(readout, { childList: true, characterData: true, subtree: true });
    // It shows the value; as an edit field it would be a second, unnamed control.
    readout.contentEditable = "false";
  }

  // Which button of a group is pressed is shown by colour; say it as well.
  function nameButtons(group) {
    group.setAttribute("role", "group");
    setAttribute(group, "aria-label", labelOf(group));
    const say = () => {
      for (const button of group.querySelectorAll("button")) {
        const pressed = button.classList.contains("mod-active");
        setAttribute(button, "aria-pressed", String(pressed));
      }
    };
    say();
    new MutationObserver(say).observe(group, {
      attributes: true,
      attributeFilter: ["class"],
      subtree: true,
    });
  }

  function nameControls(root) {
    const once = (selector, name) => {
      for (const element of root.querySelectorAll(`${selector}:not([data-named])`)) {
        element.dataset.named = "";
        name(element);
      }
    };
    once(".widget-subarea .widget-slider:has(.noUi-handle)", nameSlider);
    once(".widget-subarea .widget-toggle-buttons:has(button)", nameButtons);
    // The text of a new frame is read out while the focus stays on the dial.
    once(".widget-subarea > .widget-vbox > .widget-box:last-child", (stack) => {
      stack.setAttribute("aria-live", "polite");
    });
    // The manager writes the tooltip that nobody gave as the word null.
    for (const label of root.querySelectorAll('.widget-subarea [title="null"]')) {
      label.removeAttribute("title");
    }
  }

  function start() {
    const places = [...document.querySelectorAll(VIEW)].map((view) => view.parentElement);
    const main = document.getElementById("main-content") || document.body;
    new MutationObserver(() => nameControls(main)).observe(main, {
      childList: true,
      subtree: true,
    });
    const observer = new IntersectionObserver(
      (entries) => {
        if (!entries.some((entry) => entry.isIntersecting)) return;
        observer.disconnect();
        loadManager();
      },
      { rootMargin: "800px" },
    );
    places.forEach((place) => observer.observe(place));
  }

  if (document.readyState === "complete") start();
  else window.addEventListener("load", start);
})();
