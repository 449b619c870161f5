/* Which page is shown: addresses, tabs, keys, theme. */
(() => {
  "use strict";

  const taut = window.taut;
  const { el } = taut;
  const TABS = ["overview", "timeline", "structure", "whatif", "scaling", "control", "bill", "decisions"];
  const root = document.getElementById("main");
  const bar = document.getElementById("bar");
  let now = null; // what is shown: {run, view, card, leave, changed}
  let watched = false; // whether a collector keeps anything in the folders that are served

  // -------------------------------------------------------------------------------------------------------------------
  // Going from page to page

  const show = (href, replaced) => {
    if (replaced) history.replaceState(null, "", href);
    else history.pushState(null, "", href);
  };

  const go = (run, view, params) => {
    show(taut.source.href(run, view, params));
    return drawn(true);
  };

  /** The list of runs; the bar says where jobs that run are shown, if any are watched. */
  const listed = async (params, signal) => {
    const list = await taut.source.get(null, "runs", params, signal);
    if (watched !== Boolean(list.live)) {
      watched = Boolean(list.live);
      if (now && !now.run) head(now, null);
    }
    return list;
  };

  const found = async (run, signal) => {
    if (!run) return null;
    if (now && now.card && now.run === run) return now.card;
    const list = await listed({}, signal);
    const card = list.runs.find((one) => one.id === run);
    if (!card) throw new Error("no such run is served: " + run);
    return card;
  };

  const context = (place, card, signal) => ({
    run: place.run,
    card,
    params: place.params,
    signal,
    get: (name, params) => (name === "runs" ? listed(params, signal) : taut.source.get(place.run, name, params, signal)),
    bytes: (name, params) => taut.source.bytes(place.run, name, params, signal),
    post: (name, body) => taut.source.post(place.run, name, body, signal),
    go: (view, params) => go(place.run, view, params),
    open: (run, view, params) => go(run, view, params),
    href: (view, params, run) => taut.source.href(run || place.run, view, params),
    set: (params) => show(taut.source.href(place.run, place.view, params), true),
    live: (text) => taut.say(text),
  });

  const failure = (error) => {
    if (error.name === "AbortError") return;
    root.replaceChildren(el("h1", {}, "This could not be shown"), taut.empty(error.message || String(error), taut.source.live ? "Is the run still there? The list of runs shows all that can be opened." : null), el("p", {}, el("a", { href: taut.source.href(null, "runs") }, taut.source.live ? "to the list of runs" : "to the first page")));
  };

  const drawn = async (moved = false) => {
    const place = taut.source.where();
    if (place.view === null) place.view = await taut.source.first();
    if (now && moved && now.changed && now.run === place.run && now.view === place.view) return now.changed(place.params);
    if (now) now.leave.abort();
    const leave = new AbortController();
    const before = now;
    now = { run: place.run, view: place.view, card: before && before.run === place.run ? before.card : null, leave, changed: null };
    const mine = now;
    taut.tip(null);
    root.replaceChildren();
    root.className = "page page-" + place.view;
    try {
      mine.card = await found(place.run, leave.signal);
      if (mine !== now) return undefined;
      head(place, mine.card);
      await page(place, mine, leave.signal);
    } catch (error) {
      if (mine === now) failure(error);
    }
    if (moved && mine === now) root.focus({ preventScroll: true });
    return undefined;
  };

  /** What stands on a page until it has something of its own. */
  const waiting = (title) => {
    const words = [el("h1", {}, title), el("p", { class: "muted waiting", role: "status" }, "reading the run …")];
    root.replaceChildren(...words);
    const watch = new MutationObserver(() => {
      if (root.childElementCount === 2 && root.firstChild === words[0]) return;
      watch.disconnect();
      for (const word of words) word.remove();
    });
    watch.observe(root, { childList: true });
  };

  const page = async (place, mine, signal) => {
    const view = taut.views[place.view];
    if (!view) throw new Error("no such page: " + place.view);
    document.title = [view.title, mine.card && taut.safe(mine.card.name), "taut"].filter(Boolean).join(" · ");
    if (mine.card && !mine.card.views.includes(place.view) && view.needs) {
      const needs = typeof view.needs === "function" ? view.needs(mine.card) : view.needs;
      root.append(el("h1", {}, view.title), taut.empty(taut.source.live ? `Nothing to show of ${mine.card.name}` : "Not in this file", needs.text || needs, needs.command));
      return;
    }
    waiting(view.title);
    const changed = await view.draw(root, context(place, mine.card, signal));
    if (typeof changed === "function") mine.changed = changed;
  };

  // -------------------------------------------------------------------------------------------------------------------
  // The bar above all pages

  const tab = (place, card, name, i) => {
    const view = taut.views[name];
    const has = card.views.includes(name);
    return el("a", { href: taut.source.href(place.run, name), class: has ? "tab" : "tab none", "aria-current": place.view === name ? "page" : null, title: has ? `key ${i + 1}` : `key ${i + 1}: nothing recorded` }, view ? view.title : name);
  };

  const head = (place, card) => {
    bar.replaceChildren();
    if (watched || place.view === "live")
      bar.append(el("nav", { "aria-label": "all runs" }, [["runs", "Runs", 0], ["live", "Live", 9]].map(([view, title, key]) =>
        el("a", { href: taut.source.href(null, view), class: "tab", "aria-current": place.view === view ? "page" : null, title: `key ${key}` }, title))));
    if (!card) return;
    bar.append(
      el("span", { class: "run", title: `${card.name}: ${card.folder}` }, card.name),
      el("nav", { "aria-label": "pages of this run" }, TABS.map((name, i) => tab(place, card, name, i))));
  };

  const themed = () => {
    const button = document.getElementById("theme");
    const words = { auto: "◐", light: "☀", dark: "☾" };
    const word = () => {
      const choice = taut.theme();
      button.textContent = words[choice];
      button.setAttribute("aria-label", `colours: ${choice === "auto" ? "as the system has them" : choice}`);
      button.title = button.getAttribute("aria-label");
    };
    button.addEventListener("click", () => { taut.theme({ auto: "light", light: "dark", dark: "auto" }[taut.theme()]); word(); });
    word();
  };

  // -------------------------------------------------------------------------------------------------------------------
  // Keys

  const KEYS = [
    ["1 … 8", "pages of a run, in the order of the tabs"], ["0", "list of runs"], ["9", "jobs that run"], ["/", "filter"], ["Tab", "next control; charts and canvases too"],
    ["arrows", "move within a map, the timeline or the graph"], ["+ −", "zoom the timeline"], ["Enter", "open what is under the cursor"], ["Esc", "close"], ["?", "these keys"],
  ];

  const help = () => {
    const dialog = el("dialog", { "aria-labelledby": "keys-title" }, el("h2", { id: "keys-title" }, "Keys"),
      el("dl", { class: "keys" }, KEYS.map(([key, text]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, text)])),
      el("div", { class: "buttons" }, taut.button("close", () => dialog.close(), { class: "main" })));
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  };

  const typing = (node) => node instanceof HTMLElement && (node.isContentEditable || (/^(INPUT|TEXTAREA|SELECT)$/.test(node.tagName) && !/^(checkbox|radio|range|button)$/.test(node.type)));

  const pressed = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.key === "Escape") taut.tip(null);
    if (typing(event.target) || document.querySelector("dialog[open]")) return;
    const number = "12345678".indexOf(event.key);
    if (event.key === "?") help();
    else if (event.key === "/") {
      const filter = root.querySelector("[data-filter]");
      if (!filter) return;
      filter.focus();
    } else if (event.key === "0" && taut.source.live) go(null, "runs");
    else if (event.key === "9" && taut.source.live) go(null, "live");
    else if (number >= 0 && now && now.run) go(now.run, TABS[number]);
    else return;
    event.preventDefault();
  };

  /** Links within the app go from page to page without a load. */
  const followed = (event) => {
    const link = event.target instanceof Element && event.target.closest("a[href]");
    if (!link || event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || link.target || link.hasAttribute("download")) return;
    const href = link.getAttribute("href");
    if (href === "#main") { event.preventDefault(); root.focus(); return; }
    if (!/^(\/(?!api|static)|#\/)/.test(href)) return;
    event.preventDefault();
    show(href);
    drawn(true);
  };

  addEventListener("popstate", () => drawn(true));
  document.addEventListener("click", followed);
  document.addEventListener("keydown", pressed);
  document.getElementById("help").addEventListener("click", help);
  themed();
  drawn();
})();
