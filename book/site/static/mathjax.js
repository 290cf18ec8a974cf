// On pages with mathematics, before MathJax starts: typeset what is in view first, then
// the rest, one formula at a time, so that a phone answers to its reader meanwhile.
(() => {
  "use strict";
  const PATIENCE = 10000; // ms
  const later = window.requestIdleCallback || ((done) => setTimeout(done));
  const idle = () => new Promise((done) => later(done, { timeout: 200 }));
  const soon = () => new Promise((done) => setTimeout(done));

  // An observer, since to ask where a formula stands would lay out all sections.
  const inView = (equations) =>
    new Promise((done) => {
      const observer = new IntersectionObserver((entries) => {
        observer.disconnect();
        done(entries.filter((e) => e.isIntersecting).map((e) => e.target));
      });
      equations.forEach((equation) => observer.observe(equation));
    });

  async function typesetAll() {
    const equations = [...document.querySelectorAll(".math")];
    const first = equations.length ? await inView(equations) : [];
    for (const equation of first) {
      await soon();
      await MathJax.typesetPromise([equation]);
    }
    for (const equation of equations.filter((each) => !first.includes(each))) {
      await idle();
      await MathJax.typesetPromise([equation]);
    }
  }

  // mathematics.css hides the TeX of what will be drawn. If nothing can draw it, it is shown.
  const showTeX = () => document.documentElement.classList.add("tex-shown");
  addEventListener("error", ({ target }) => /\/mathjax\//.test(target.src) && showTeX(), true);
  setTimeout(() => document.querySelector("mjx-container") || showTeX(), PATIENCE);

  MathJax.startup = { pageReady: typesetAll };
})();
