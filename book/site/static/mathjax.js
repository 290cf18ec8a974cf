// On pages with mathematics, before MathJax starts: typeset what is in view first, then
// the rest a little at a time, so that a phone answers to its reader meanwhile.
(() => {
  "use strict";
  const AT_ONCE = 3;
  const later = window.requestIdleCallback || ((done) => setTimeout(done));
  const idle = () => new Promise((done) => later(done, { timeout: 200 }));

  async function typesetAll() {
    const inView = (element) => element.getBoundingClientRect().top < innerHeight;
    const equations = [...document.querySelectorAll(".math")];
    const first = equations.filter(inView);
    const rest = equations.filter((element) => !first.includes(element));
    if (first.length) await MathJax.typesetPromise(first);
    while (rest.length) {
      await idle();
      await MathJax.typesetPromise(rest.splice(0, AT_ONCE));
    }
  }

  MathJax.startup = { pageReady: typesetAll };
})();
