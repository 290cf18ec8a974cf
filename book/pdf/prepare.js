// Makes a built page ready for paper, in the page itself. Gets the ids that other pages
// link to; returns the title, and the headings with their ids.
(wanted) => {
  const article = document.querySelector("article.bd-article");

  // Explorers: instead of a slider, a picture for each setting of the innermost dial,
  // read from the widgets' state, since on paper nothing runs.
  const states = document.querySelector('script[type$="widget-state+json"]');
  const models = states ? JSON.parse(states.textContent).state : {};
  const model = (reference) => models[reference.replace("IPY_MODEL_", "")];
  const frames = (each) => {
    const children = (each.state.children || []).map(model);
    if (each.model_name === "HTMLModel") return [each.state.value];
    if (each.model_name !== "StackModel") return children.flatMap(frames);
    const leaves = children.every((child) => child.model_name === "HTMLModel");
    return leaves ? children.flatMap(frames) : frames(children[each.state.selected_index]);
  };
  const views = article.querySelectorAll('script[type$="widget-view+json"]');
  for (const view of views) {
    const grid = document.createElement("div");
    grid.className = "explorer-on-paper";
    for (const html of frames(models[JSON.parse(view.textContent).model_id])) {
      const frame = document.createElement("div");
      frame.innerHTML = html;
      const alt = frame.querySelector("img")?.alt || "";
      const setting = document.createElement("strong");
      setting.textContent = alt.match(/^Plot for (.*?)\. /)?.[1] || "";
      frame.prepend(setting);
      grid.append(frame);
    }
    view.parentElement.replaceChildren(grid);
  }

  // Chromium gives a PDF a destination for each id that is linked to on its own page.
  const headings = [...article.querySelectorAll("h1, h2")].map((heading) => {
    const copy = heading.cloneNode(true);
    copy.querySelectorAll(".headerlink, mjx-assistive-mml").forEach((a) => a.remove());
    const holder = heading.closest("[id]");
    return [Number(heading.tagName[1]), holder.id, copy.textContent.trim()];
  });
  const links = document.createElement("div");
  links.style = "position: absolute; top: 0; font-size: 1px; line-height: 1px";
  for (const id of new Set([...wanted, ...headings.map((heading) => heading[1])])) {
    if (!document.getElementById(id)) continue;
    const link = document.createElement("a");
    link.href = "#" + id;
    link.textContent = ".";
    link.style = "color: white";
    links.append(link);
  }
  article.style.position = "relative";
  article.append(links);
  return headings;
};
