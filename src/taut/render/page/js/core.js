/* What all pages share: elements, words for numbers, tables, pictures, and the register of pages. */
(() => {
  "use strict";

  const taut = (window.taut = window.taut || {});
  const UNKNOWN = "–";
  const SVG = "http://www.w3.org/2000/svg";

  // -------------------------------------------------------------------------------------------------------------------
  // Elements. Strings become text, never markup.

  // Written as an escape, since it would not be seen: controls, direction marks, tags.
  const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]|\udb40[\udc00-\udfff]/g;

  taut.safe = (text) =>
    String(text).replace(UNSEEN, (found) =>
      Array.from(found, (c) => "\\u" + c.codePointAt(0).toString(16).padStart(4, "0")).join(""));

  const ALLOWED = new Set([
    "class", "id", "title", "role", "tabindex", "href", "type", "value", "min", "max", "step", "name", "for", "placeholder",
    "colspan", "rowspan", "scope", "lang", "rel", "target", "download", "checked", "disabled", "hidden", "open", "selected",
    "readonly", "rows", "cols", "maxlength", "autocomplete", "spellcheck", "width", "height", "list", "required", "novalidate",
  ]);

  function attribute(node, name, value) {
    if (value === null || value === undefined || value === false) return;
    if (name === "on") {
      for (const [event, run] of Object.entries(value)) node.addEventListener(event, run);
    } else if (name === "href" && !/^(\/(?!\/)|#|\?|blob:|https:\/\/ui\.perfetto\.dev$)/.test(value)) {
      throw new Error("no such address is linked: " + value);
    } else if (name.startsWith("aria-") || name.startsWith("data-") || ALLOWED.has(name) || node.namespaceURI === SVG) {
      if (/^on|^style$/i.test(name)) throw new Error("no handlers or styles as attributes");
      node.setAttribute(name, value === true ? "" : name === "title" || name === "aria-label" ? taut.safe(value) : String(value));
    } else throw new Error("no such attribute: " + name);
  }

  taut.add = (node, ...children) => {
    for (const child of children.flat(Infinity)) {
      if (child === null || child === undefined || child === false) continue;
      node.append(child instanceof Node ? child : document.createTextNode(taut.safe(child)));
    }
    return node;
  };

  const made = (node, attrs, children) => {
    for (const [name, value] of Object.entries(attrs || {})) attribute(node, name, value);
    return taut.add(node, ...children);
  };

  taut.el = (tag, attrs, ...children) => made(document.createElement(tag), attrs, children);
  taut.svg = (tag, attrs, ...children) => made(document.createElementNS(SVG, tag), attrs, children);
  taut.clear = (node) => (node.replaceChildren(), node);
  const el = taut.el;

  // -------------------------------------------------------------------------------------------------------------------
  // Words for numbers, as the terminal writes them.

  const grouped = (value, digits) =>
    value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  const missing = (value) => value === null || value === undefined || Number.isNaN(value);

  taut.three = (value) => grouped(value, Math.abs(value) >= 99.95 ? 0 : Math.abs(value) >= 9.995 ? 1 : 2);

  const TIMES = [[3600e9, "h", 2], [60e9, "min", 2], [1e9, "s", 1], [1e6, "ms", 1], [1e3, "µs", 1]];

  taut.ns = (ns) => {
    if (missing(ns)) return UNKNOWN;
    for (const [unit, name, least] of TIMES) if (Math.abs(ns) >= least * unit * 0.9995) return `${taut.three(ns / unit)} ${name}`;
    return `${Math.round(ns)} ns`;
  };

  taut.percent = (share, digits = 1) => {
    if (missing(share)) return UNKNOWN;
    const least = 0.5 * 10 ** -(digits + 2);
    if (share > 0 && share < least) return `<${10 ** -digits} %`;
    if (share < 0 && share > -least) return `>-${10 ** -digits} %`;
    return `${grouped(100 * share, digits)} %`;
  };

  taut.money = (amount, currency) => {
    if (missing(amount)) return UNKNOWN;
    const value = Number(amount);
    const size = Math.abs(value);
    const digits = size === 0 || size >= 1 ? 2 : Math.min(1 - Math.floor(Math.log10(size)), 6);
    return `${grouped(value, digits)} ${currency || ""}`.trim();
  };

  taut.count = (number, noun) =>
    missing(number) ? UNKNOWN : grouped(number, 0) + (noun ? ` ${noun}${number === 1 ? "" : "s"}` : "");

  taut.bytes = (count) => {
    if (missing(count)) return UNKNOWN;
    for (const [unit, name] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) if (count >= unit * 0.9995) return `${taut.three(count / unit)} ${name}`;
    return `${count} B`;
  };

  /** The words of a number with its sign: ``taut.signed(-3e6, taut.ns)`` is ``−3.00 ms``. */
  taut.signed = (value, words = taut.three) =>
    missing(value) ? UNKNOWN : (value > 0 ? "+" : value < 0 ? "−" : "") + words(Math.abs(value));

  /** ``24–46 %`` of an estimate of a share; its value alone where it has no interval. */
  taut.interval = (estimate, words) => {
    if (!estimate) return UNKNOWN;
    if (missing(estimate.lo) || missing(estimate.hi)) return words(estimate.value);
    const [lo, hi] = [words(estimate.lo), words(estimate.hi)];
    const unit = hi.replace(/^[^ ]*/, "");
    return `${lo.endsWith(unit) ? lo.slice(0, lo.length - unit.length) : lo}${estimate.lo < 0 ? " to " : "–"}${hi}`;
  };

  taut.span = (first, last) => (first === last ? `step ${first}` : `steps ${first}–${last}`);

  taut.when = (ns) => (missing(ns) ? UNKNOWN : new Date(ns / 1e6).toISOString().slice(0, 16).replace("T", " ") + " UTC");

  /** How long ago something was. */
  taut.ago = (ns) => {
    const s = Math.max(0, Date.now() / 1e3 - ns / 1e9);
    for (const [unit, noun] of [[86400, "day"], [3600, "hour"], [60, "minute"]]) if (s >= unit) return `${taut.count(Math.floor(s / unit), noun)} ago`;
    return "just now";
  };

  // -------------------------------------------------------------------------------------------------------------------
  // Colours and theme

  const COLOURS = {
    "slow compute": "slow", "fault wait": "fault", "jitter wait": "jitter", "structural wait": "structural",
    "gap wait": "gap", "unexplained wait": "unexplained", useful: "compute", productive: "compute", waiting: "fault",
    other: "unexplained", observed: "ink", ideal: "compute", baseline: "copy",
  };
  let known = {};
  const watchers = new Set();

  /** CSS colour of a state, a fate's group, or of a custom property without its dashes. */
  taut.colour = (name) => {
    const property = "--" + (COLOURS[name] || name);
    if (!(property in known)) known[property] = getComputedStyle(document.documentElement).getPropertyValue(property).trim() || "#999999";
    return known[property];
  };

  /** Calls ``f`` when light turns dark or back; stops once ``signal`` is aborted. */
  taut.onTheme = (f, signal) => {
    watchers.add(f);
    if (signal) signal.addEventListener("abort", () => watchers.delete(f));
    return () => watchers.delete(f);
  };

  const themeChanged = () => {
    known = {};
    for (const f of [...watchers]) f();
  };
  const remembered = () => { try { return localStorage.getItem("taut-theme"); } catch { return null; } };

  /** ``auto``, ``light`` or ``dark``. */
  taut.theme = (choice) => {
    if (choice === undefined) return document.documentElement.dataset.theme || "auto";
    if (choice === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = choice;
    try { localStorage.setItem("taut-theme", choice); } catch { /* a file may not remember */ }
    themeChanged();
    return choice;
  };
  if (["light", "dark"].includes(remembered())) document.documentElement.dataset.theme = remembered();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", themeChanged);

  // Paper is light, whatever the screen is.
  let screen = null;
  addEventListener("beforeprint", () => { screen = taut.theme(); document.documentElement.dataset.theme = "light"; themeChanged(); });
  addEventListener("afterprint", () => { if (screen === "auto") delete document.documentElement.dataset.theme; else if (screen) document.documentElement.dataset.theme = screen; themeChanged(); });

  /** Between two ``#rrggbb`` colours. */
  taut.mix = (from, to, share) => {
    const parts = (c) => [1, 3, 5].map((i) => parseInt(c.slice(i, i + 2), 16));
    const [a, b] = [parts(from), parts(to)];
    return "#" + a.map((x, i) => Math.round(x + (b[i] - x) * Math.max(0, Math.min(1, share))).toString(16).padStart(2, "0")).join("");
  };

  // -------------------------------------------------------------------------------------------------------------------
  // Messages

  /** Says something to screen readers; shows it for a moment where ``shown``. */
  taut.say = (text, shown = false) => {
    const live = document.getElementById("live");
    if (live) live.textContent = taut.safe(text);
    if (!shown) return;
    const toast = el("div", { class: "toast", "aria-hidden": "true" }, text);
    document.body.append(toast);
    setTimeout(() => toast.remove(), 2200);
  };

  /** Says which parts of an address name nothing of this run: ``{rank: "99"}`` and ``{rank: false}``. */
  taut.unknown = (params, found) => {
    const lost = Object.keys(found).filter((key) => params[key] !== undefined && params[key] !== "" && !found[key]);
    if (lost.length) taut.say(`This run has no ${lost.map((key) => `${key} ${params[key]}`).join(" and no ")}`, true);
  };

  let tip = null;

  /** Shows lines of text beside a point of the window; hides them where there are none. */
  taut.tip = (lines, x, y) => {
    if (!lines || !lines.length) {
      if (tip) tip.hidden = true;
      return;
    }
    if (!tip) document.body.append((tip = el("div", { class: "tip", "aria-hidden": "true" })));
    taut.clear(tip);
    for (const line of [lines].flat()) tip.append(el("div", {}, line));
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - box.width - 8))}px`;
    tip.style.top = `${Math.max(4, y + 18 + box.height > innerHeight ? y - box.height - 10 : y + 18)}px`;
  };

  /** A small question mark that explains the word before it. */
  taut.why = (text) => {
    const show = (event) => {
      const box = event.currentTarget.getBoundingClientRect();
      taut.tip(text, box.left - 8, box.bottom - 14);
    };
    const hide = () => taut.tip(null);
    return el("button", { type: "button", class: "why", "aria-label": text, on: { mouseenter: show, focus: show, click: show, mouseleave: hide, blur: hide } }, "?");
  };

  taut.copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const box = el("textarea", { class: "unseen", "aria-hidden": "true", tabindex: "-1" });
      box.value = text;
      document.body.append(box);
      box.select();
      document.execCommand("copy");
      box.remove();
    }
    taut.say("Copied", true);
  };

  /** A word of a command, as a shell takes it. */
  taut.quoted = (text) => (/^[A-Za-z0-9_./=:@%+,-]+$/.test(text) ? text : `'${text.replace(/'/g, "'\\''")}'`);

  /** A command with a button that copies it. */
  taut.command = (text, label) =>
    el("div", { class: "command" }, label && el("span", { class: "label" }, label), el("code", {}, text),
      taut.button("copy", () => taut.copy(text), { class: "small", "aria-label": "copy the command " + text }));

  taut.button = (text, run, attrs = {}) => el("button", { type: "button", ...attrs, on: { click: run } }, text);

  /** Something to unfold. */
  taut.fold = (title, ...children) => el("details", { class: "fold" }, el("summary", {}, title), ...children);

  /** What stands where there is nothing to show: why, what would change it, and the command. */
  taut.empty = (title, text, command) =>
    el("div", { class: "empty" }, el("p", { class: "strong" }, title), text && el("p", {}, text), command && taut.command(command));

  taut.section = (title, ...children) => el("section", { class: "card" }, title && el("h2", {}, title), ...children);

  /** A question that must be answered; gives whether the answer was yes. */
  taut.ask = (title, text, yes) =>
    new Promise((answer) => {
      const close = (value) => { dialog.close(); dialog.remove(); answer(value); };
      const dialog = el("dialog", { "aria-labelledby": "ask-title", on: { cancel: (e) => (e.preventDefault(), close(false)) } },
        el("h2", { id: "ask-title" }, title), [text].flat().map((line) => el("p", {}, line)),
        el("div", { class: "buttons" }, taut.button("cancel", () => close(false)), taut.button(yes, () => close(true), { class: "main" })));
      document.body.append(dialog);
      dialog.showModal();
    });

  /** Gives a file to whoever reads the page. */
  taut.save = (name, data, type) => {
    const address = URL.createObjectURL(new Blob([data], { type }));
    const link = el("a", { href: address, download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  };

  /** ``f`` once nothing has been asked for a moment. */
  taut.later = (f, ms = 150) => {
    let timer = 0;
    return (...given) => { clearTimeout(timer); timer = setTimeout(() => f(...given), ms); };
  };

  // -------------------------------------------------------------------------------------------------------------------
  // Tables

  // A spreadsheet would take such text for a formula.
  const field = (value) => {
    const text = typeof value === "number" ? String(value) : /^[=+\-@\t\r\n]/.test(value) ? "'" + value : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  };

  taut.csv = (columns, rows) => {
    const value = (column, row) => { const v = column.value ? column.value(row) : row[column.key]; return missing(v) ? "" : v; };
    return [columns.map((c) => field(c.label)), ...rows.map((row) => columns.map((c) => field(value(c, row))))].map((line) => line.join(",")).join("\r\n") + "\r\n";
  };

  const compared = (a, b) => (missing(a) ? 1 : missing(b) ? -1 : typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));

  /**
   * A sortable table: ``{caption, columns: [{key, label, title, value(row), text(row), node(row), number}], rows, pick(row),
   * csv: "name.csv", sort: "key" or "-key", most: N, filter: "label", small}``. ``element.update(rows)`` shows others.
   */
  taut.table = (given) => {
    const { columns, pick, most } = given;
    let rows = given.rows;
    let sort = (given.sort || "").replace(/^-/, "");
    let down = (given.sort || "").startsWith("-");
    let all = false;
    let wanted = "";
    const value = (column, row) => (column.value ? column.value(row) : row[column.key]);
    const text = (column, row) => {
      if (column.text) return column.text(row);
      const v = value(column, row);
      return missing(v) || v === "" ? UNKNOWN : typeof v === "number" ? v.toLocaleString("en-US") : v;
    };
    const body = el("tbody", {});
    const more = el("div", { class: "more" });
    const heads = columns.map((column) =>
      el("th", { scope: "col", class: column.number ? "number" : "", title: column.title },
        el("button", { type: "button", class: "sort", on: { click: () => turn(column) } }, column.label)));
    const shown = () => {
      const found = wanted ? rows.filter((row) => columns.some((c) => String(text(c, row)).toLowerCase().includes(wanted))) : [...rows];
      const column = columns.find((c) => c.key === sort);
      if (column) found.sort((a, b) => { const [x, y] = [value(column, a), value(column, b)]; return missing(x) || missing(y) ? compared(x, y) : (down ? -1 : 1) * compared(x, y); });
      return found;
    };
    const cell = (column, row, first) => {
      const inside = column.node ? column.node(row) : text(column, row);
      const attrs = { class: (column.number ? "number" : "") + (column.wide ? " wide" : ""), title: column.node || String(inside).length < 25 ? null : inside };
      if (first && pick) return el("th", { ...attrs, scope: "row" }, taut.button(inside, (e) => (e.stopPropagation(), pick(row)), { class: "pick" }));
      return el(first ? "th" : "td", first ? { ...attrs, scope: "row" } : attrs, inside);
    };
    const draw = () => {
      const found = shown();
      const few = most && !all ? found.slice(0, most) : found;
      body.replaceChildren(...few.map((row) => el("tr", { class: pick ? "picked" : "", on: pick ? { click: () => pick(row) } : {} }, columns.map((c, i) => cell(c, row, i === 0)))));
      if (!found.length) body.append(el("tr", {}, el("td", { colspan: columns.length, class: "muted" }, "nothing")));
      heads.forEach((head, i) => (columns[i].key === sort ? head.setAttribute("aria-sort", down ? "descending" : "ascending") : head.removeAttribute("aria-sort")));
      more.replaceChildren();
      if (few.length < found.length) more.append(taut.button(`show all ${taut.count(found.length)}`, () => ((all = true), draw()), { class: "small" }));
    };
    const turn = (column) => {
      down = column.key === sort ? !down : Boolean(column.number);
      sort = column.key;
      draw();
    };
    const caption = el("caption", {}, el("span", {}, given.caption));
    const tools = el("div", { class: "tools" });
    if (given.filter) tools.append(el("input", { type: "search", class: "small", placeholder: given.filter, "aria-label": given.filter, "data-filter": "", spellcheck: "false", on: { input: (e) => ((wanted = e.target.value.trim().toLowerCase()), draw()) } }));
    if (given.csv) tools.append(taut.button("CSV", () => taut.save(given.csv, taut.csv(columns, shown()), "text/csv;charset=utf-8"), { class: "small", "aria-label": `download ${given.caption} as CSV` }));
    const element = el("div", { class: "table" + (given.small ? " dense" : "") }, tools.childNodes.length ? tools : null,
      el("div", { class: "scroll" }, el("table", {}, caption, el("thead", {}, el("tr", {}, heads)), body)), more);
    element.update = (others) => { rows = others; draw(); };
    draw();
    return element;
  };

  // -------------------------------------------------------------------------------------------------------------------
  // Pictures

  /** A bar of shares: ``parts`` are {name, share, group, text}; patterns tell groups apart without colour. */
  taut.bar = (parts, alt) => {
    const bar = el("div", { class: "bar", role: "img", "aria-label": alt });
    for (const part of parts) {
      const piece = el("span", { class: "piece fill-" + part.group, on: {
        mousemove: (e) => taut.tip([`${part.name}: ${part.text}`], e.clientX, e.clientY), mouseleave: () => taut.tip(null) } });
      piece.style.flexGrow = String(part.share);
      bar.append(piece);
    }
    return bar;
  };

  taut.key = (group, ...words) => el("span", { class: "key" }, el("i", { class: "swatch fill-" + group, "aria-hidden": "true" }), ...words);

  /**
   * Cells of a matrix on a canvas: ``{rows: [label], columns: [label], value(r, c) → number or null, words(r, c) → lines,
   * pick(r, c), alt, colour, left}``. Arrow keys move, Enter picks; what is under the cursor is said.
   */
  taut.heat = (given) => {
    const { rows, columns, value, words, pick, signal } = given;
    const left = given.left === undefined ? 84 : given.left;
    const [top, foot] = [4, given.axis ? 30 : 18];
    let at = null;
    let most = 0;
    rows.forEach((_, r) => columns.forEach((_, c) => (most = Math.max(most, value(r, c) || 0))));
    const canvas = el("canvas", { class: "heat", tabindex: "0", role: "img", "aria-label": given.alt });
    const element = el("div", { class: "picture" }, canvas);
    const place = () => {
      const [width, height] = [element.clientWidth, element.clientHeight];
      return { width, height, w: (width - left - 4) / columns.length, h: (height - top - foot) / rows.length };
    };
    const shade = (v, paper, ink) => taut.mix(paper, ink, v > 0 ? 0.05 + 0.95 * (v / (most || 1)) ** 0.7 : 0);
    const draw = () => {
      const p = place();
      if (p.width < 40 || p.height < 40) return;
      const ratio = devicePixelRatio || 1;
      canvas.width = Math.round(p.width * ratio);
      canvas.height = Math.round(p.height * ratio);
      const pen = canvas.getContext("2d");
      pen.scale(ratio, ratio);
      const [paper, ink, line] = [taut.colour("paper"), taut.colour(given.colour || "slow"), taut.colour("grid")];
      pen.fillStyle = taut.colour("ground");
      pen.fillRect(left, top, p.w * columns.length, p.h * rows.length);
      const gap = p.w > 6 && p.h > 6 ? 1 : 0;
      rows.forEach((_, r) => columns.forEach((_, c) => {
        const v = value(r, c);
        if (missing(v)) return;
        pen.fillStyle = shade(v, paper, ink);
        const [x, y] = [left + c * p.w, top + r * p.h];
        pen.fillRect(gap ? x : Math.floor(x), gap ? y : Math.floor(y), gap ? p.w - gap : Math.ceil(p.w), gap ? p.h - gap : Math.ceil(p.h));
      }));
      pen.strokeStyle = line;
      pen.strokeRect(left - 0.5, top - 0.5, p.w * columns.length + 1, p.h * rows.length + 1);
      pen.fillStyle = taut.colour("muted");
      pen.font = "11px " + getComputedStyle(document.body).fontFamily;
      labels(pen, p);
      if (at) {
        pen.strokeStyle = taut.colour("accent");
        pen.lineWidth = 2;
        pen.strokeRect(left + at[1] * p.w - 1, top + at[0] * p.h - 1, Math.max(p.w, 3) + 2, Math.max(p.h, 3) + 2);
      }
    };
    const cut = (pen, label, width) => {
      if (pen.measureText(label).width <= width) return label;
      let n = label.length;
      while (n > 1 && pen.measureText(label.slice(0, n) + "…").width > width) n -= 1;
      return label.slice(0, n) + "…";
    };
    const labels = (pen, p) => {
      pen.textBaseline = "middle";
      pen.textAlign = "right";
      for (let r = 0, every = Math.max(1, Math.ceil(13 / p.h)); r < rows.length; r += every) pen.fillText(cut(pen, taut.safe(rows[r]), left - 8), left - 6, top + (r + 0.5) * p.h);
      pen.textBaseline = "top";
      const y = top + p.h * rows.length + 4;
      const widest = Math.max(...columns.map((c) => Math.min(60, pen.measureText(taut.safe(c)).width)), 8) + 10;
      for (let c = 0, every = Math.max(1, Math.ceil(widest / p.w)); c < columns.length; c += every) {
        pen.textAlign = c === 0 && p.w < widest ? "left" : "center";
        pen.fillText(cut(pen, taut.safe(columns[c]), every * p.w - 4), left + (pen.textAlign === "left" ? 0 : (c + 0.5) * p.w), y);
      }
      if (given.axis) { pen.textAlign = "center"; pen.fillText(given.axis, left + (p.w * columns.length) / 2, y + 13); }
    };
    const under = (event) => {
      const [box, p] = [canvas.getBoundingClientRect(), place()];
      const [c, r] = [Math.floor((event.clientX - box.left - left) / p.w), Math.floor((event.clientY - box.top - top) / p.h)];
      return r >= 0 && c >= 0 && r < rows.length && c < columns.length ? [r, c] : null;
    };
    const largest = () => {
      let found = [0, 0];
      rows.forEach((_, r) => columns.forEach((_, c) => { if ((value(r, c) || 0) > (value(...found) || 0)) found = [r, c]; }));
      return found;
    };
    const say = () => {
      const [box, p] = [canvas.getBoundingClientRect(), place()];
      const lines = [words(...at)].flat();
      taut.tip(lines, box.left + left + (at[1] + 0.5) * p.w, box.top + top + (at[0] + 0.5) * p.h);
      taut.say(lines.join(", "));
    };
    canvas.addEventListener("mousemove", (e) => { const found = under(e); canvas.classList.toggle("pointing", Boolean(found && pick)); taut.tip(found && words(...found), e.clientX, e.clientY); });
    canvas.addEventListener("mouseleave", () => taut.tip(null));
    canvas.addEventListener("click", (e) => { const found = under(e); if (found && pick) { taut.tip(null); pick(...found); } });
    canvas.addEventListener("focus", () => { if (canvas.matches(":focus-visible")) { at = at || largest(); draw(); say(); } });
    canvas.addEventListener("blur", () => { at = null; taut.tip(null); draw(); });
    canvas.addEventListener("keydown", (e) => {
      const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[e.key];
      if (e.key === "Enter" && at && pick) { taut.tip(null); pick(...at); } else if (!move) return;
      e.preventDefault();
      if (!move || !element.isConnected) return;
      at = at || largest();
      at = [Math.max(0, Math.min(rows.length - 1, at[0] + move[0])), Math.max(0, Math.min(columns.length - 1, at[1] + move[1]))];
      draw();
      say();
    });
    const watch = new ResizeObserver(draw);
    watch.observe(element);
    taut.onTheme(draw, signal);
    if (signal) signal.addEventListener("abort", () => watch.disconnect());
    return element;
  };

  const vega = () => {
    if (window.vegaEmbed) return Promise.resolve(window.vegaEmbed);
    const script = document.getElementById("vega");
    if (!script) return Promise.reject(new Error("no charts here"));
    return new Promise((done, failed) => {
      script.addEventListener("load", () => done(window.vegaEmbed));
      script.addEventListener("error", () => failed(new Error("charts could not be loaded")));
      if (window.vegaEmbed) done(window.vegaEmbed);
    });
  };

  const look = () => {
    const [ink, muted, grid] = ["ink", "muted", "grid"].map(taut.colour);
    const font = getComputedStyle(document.body).fontFamily;
    const axis = { labelColor: muted, titleColor: muted, domainColor: grid, tickColor: grid, gridColor: grid, titleFontWeight: "normal", titleFontSize: 11, labelFontSize: 11, titlePadding: 4 };
    return { background: null, font, view: { stroke: null }, axis, legend: { labelColor: ink, titleColor: muted, labelFontSize: 11, titleFontSize: 11, titleFontWeight: "normal", symbolStrokeWidth: 2 }, title: { color: ink }, text: { color: ink }, mark: { tooltip: true } };
  };

  const told = (value) => (value && typeof value === "object" ? Object.entries(value).map(([k, v]) => `${k}: ${typeof v === "object" ? JSON.stringify(v) : v}`) : [String(value)]);

  /**
   * A chart of Vega-Lite as large as its element, drawn again in another theme and size. ``spec`` may be a function, called
   * when colours are known. ``alt`` says in words what it shows.
   */
  taut.chart = (element, spec, alt, signal) => {
    element.classList.add("chart");
    element.setAttribute("role", "img");
    element.setAttribute("aria-label", taut.safe(alt));
    let view = null;
    let [width, height] = [0, 0];
    const tooltip = (_, event, __, value) => (value === null || value === undefined || value === "" ? taut.tip(null) : taut.tip(told(value), event.clientX, event.clientY));
    const draw = async () => {
      if (!element.isConnected || element.clientWidth < 40) return null;
      [width, height] = [element.clientWidth, element.clientHeight];
      const embed = await vega();
      const given = typeof spec === "function" ? spec() : spec;
      const whole = { $schema: "https://vega.github.io/schema/vega-lite/v6.json", width: width, height: height, autosize: { type: "fit", contains: "padding" }, padding: 2, ...given };
      const inside = el("div", { class: "inside", "aria-hidden": "true" });
      const done = await embed(inside, whole, { mode: "vega-lite", ast: true, renderer: "canvas", actions: false, defaultStyle: false, tooltip, config: look(), logLevel: 1 });
      if (view) view.finalize();
      view = done.view;
      element.replaceChildren(inside);
      return view;
    };
    const failed = (e) => { element.replaceChildren(el("p", { class: "muted" }, String(e.message || e))); return null; };
    const again = taut.later(() => { if (element.clientWidth !== width || element.clientHeight !== height) draw().catch(failed); }, 120);
    const watch = new ResizeObserver(again);
    watch.observe(element);
    taut.onTheme(() => draw().catch(failed), signal);
    if (signal) signal.addEventListener("abort", () => { watch.disconnect(); if (view) view.finalize(); });
    return draw().catch(failed);
  };

  // -------------------------------------------------------------------------------------------------------------------
  // Pages

  taut.views = {};

  /** Registers a page: {name, title, key, needs, draw(root, context)}. */
  taut.view = (given) => { taut.views[given.name] = given; };
})();
