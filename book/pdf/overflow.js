// What would be cut off at the paper's edge: the first words of each such element.
() => [...document.querySelectorAll("article :is(pre, table, figure, .math, .explorer-on-paper)")]
  .filter((each) => each.checkVisibility())
  .filter((each) => {
    const edge = document.querySelector("article").getBoundingClientRect().right;
    const inner = [...each.querySelectorAll("mjx-container, img, span, td")];
    const right = Math.max(...[each, ...inner].map((x) => x.getBoundingClientRect().right));
    const block = /^(PRE|TABLE)$/.test(each.tagName);
    return right > edge + 2 || (block && each.scrollWidth > each.clientWidth + 2);
  })
  .map((each) => `${each.tagName.toLowerCase()}: ${each.textContent.trim().slice(0, 60)}`)
