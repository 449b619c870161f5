/* Ranks × time by level of detail: every op when close, the state that holds most of the time when far. */
(() => {
  "use strict";

  const taut = window.taut;
  const { el } = taut;
  const C = taut.canvas;

  const GUTTER = [64, 172]; // words of ranks, CSS pixels: least and most
  const LANES = 74; // words of lanes at most, where rows are split
  const HEAD = 36; // steps and times
  const MAP = 30; // the whole run above
  const SPAN = 200; // shortest that is shown, ns
  const SINGLE = 3600; // ops that an answer surely holds one by one
  const MOST_COLUMNS = 4096;
  const MOST_LINES = 2048;
  // What lies above what where a row is not split by lanes, and which words a search for a moment prefers.
  const DEPTH = { "idle": 0, "host": 1, "unexplained wait": 2, "gap wait": 3, "structural wait": 4, "jitter wait": 5, "fault wait": 6, "communication": 7, "copy": 8, "compute": 9, "slow compute": 10 };
  const PARTS = [["fault_ns", "fault wait"], ["jitter_ns", "jitter wait"], ["structural_ns", "structural wait"], ["gap_ns", "gap wait"], ["unexplained_ns", "unexplained wait"]];

  const between = (x, least, most) => Math.max(least, Math.min(most, x));
  const number = (text) => (text === undefined || text === null || text === "" || !Number.isFinite(Number(text)) ? null : Number(text));

  // -------------------------------------------------------------------------------------------------------------------
  // Frames

  const bytes = (text) => { const raw = atob(text), out = new Uint8Array(raw.length); for (let k = 0; k < raw.length; k++) out[k] = raw.charCodeAt(k); return out; };

  /** A frame as it is drawn: codes as bytes, ops as typed columns in the order in which they are drawn. */
  const prepared = (answer, states) => {
    const frame = { ...answer, bytes: typeof answer.cells === "string" ? bytes(answer.cells) : answer.cells, drawn: null };
    const ops = answer.ops;
    if (ops) {
      const depth = (k) => DEPTH[states[ops.state[k]]] || 0;
      const order = Uint32Array.from(ops.op, (_, k) => k).sort((a, b) => depth(a) - depth(b) || ops.begin_ns[a] - ops.begin_ns[b]);
      const column = (name, Kind) => Kind.from(order, (k) => ops[name][k]);
      frame.drawn = { op: column("op", Float64Array), row: column("row", Int32Array), lane: column("lane", Int32Array), begin: column("begin_ns", Float64Array), opening: column("opening_ns", Float64Array), end: column("end_ns", Float64Array), state: column("state", Int16Array), wait: column("wait", Int16Array), name: column("name", Int32Array), size: order.length };
      frame.ops = null;
    }
    return frame;
  };

  const covers = (frame, view) => frame.begin_ns <= view.begin && frame.end_ns >= view.end && frame.first_row <= view.first && frame.first_row + frame.rows >= view.first + view.rows;
  const touches = (frame, view) => frame.begin_ns < view.end && frame.end_ns > view.begin && frame.first_row < view.first + view.rows && frame.first_row + frame.rows > view.first;
  /** Ns that a column of a frame stands for; 0 where it holds every op. */
  const coarseness = (frame) => (frame.drawn ? 0 : (frame.end_ns - frame.begin_ns) / frame.columns);

  // -------------------------------------------------------------------------------------------------------------------
  // Pixels. Ops and cells are written into one image: far quicker than a call for each of them.

  /** Writes a box of a pattern; places are device pixels. */
  const box = (image, tile, x0, x1, y0, y1) => {
    const { data, width } = image;
    for (let y = y0; y < y1; y++) {
      const line = (y & 7) << 3, start = y * width;
      for (let x = x0; x < x1; x++) data[start + x] = tile[line | (x & 7)];
    }
  };

  const wipe = (image, frame, at) => {
    const x0 = between(Math.round(at.x(frame.begin_ns)), 0, image.width), x1 = between(Math.round(at.x(frame.end_ns)), 0, image.width);
    const y0 = between(Math.round(at.y(frame.first_row)), 0, image.height), y1 = between(Math.round(at.y(frame.first_row + frame.rows)), 0, image.height);
    for (let y = y0; y < y1; y++) image.data.fill(image.paper, y * image.width + x0, y * image.width + x1);
    return [x0, x1, y0, y1];
  };

  /** Draws the cells of a frame: each pixel looks up its cell. */
  const paintCells = (image, frame, at, tiles) => {
    const [x0, x1, y0, y1] = wipe(image, frame, at);
    const column = new Int32Array(image.width), { data, width } = image;
    const scale = frame.columns / (frame.end_ns - frame.begin_ns);
    for (let x = x0; x < x1; x++) column[x] = between(Math.floor((at.time(x + 0.5) - frame.begin_ns) * scale), 0, frame.columns - 1);
    for (let y = y0; y < y1; y++) {
      const row = at.row(y + 0.5);
      if (at.gap && (row - Math.floor(row)) * at.height > at.height - at.gap) continue;
      const line = between(Math.floor((row - frame.first_row) * frame.lines / frame.rows), 0, frame.lines - 1) * frame.columns;
      const start = y * width, pattern = (y & 7) << 3;
      for (let x = x0; x < x1; x++) {
        const code = frame.bytes[line + column[x]];
        if (code !== 255) data[start + x] = tiles[code][pattern | (x & 7)];
      }
    }
  };

  /** Draws the ops of a frame, waits before their gates open and work after. */
  const paintOps = (image, frame, at, tiles, lanesOf) => {
    wipe(image, frame, at);
    const ops = frame.drawn, { width, height } = image;
    for (let k = 0; k < ops.size; k++) {
      const left = at.x(ops.begin[k]), right = at.x(ops.end[k]);
      if (right < 0 || left > width) continue;
      let top = at.y(ops.row[k]), tall = at.height - at.gap;
      if (at.split) { const lanes = lanesOf(ops.row[k]); tall = (at.height - at.gap) / lanes; top += tall * ops.lane[k]; tall -= at.line; }
      const y0 = between(Math.round(top), 0, height), y1 = between(Math.max(Math.round(top + tall), y0 + 1), 0, height);
      if (y1 <= y0) continue;
      const x0 = between(Math.floor(left), 0, width), middle = between(Math.round(at.x(ops.opening[k])), x0, width);
      let x1 = between(Math.max(Math.floor(right), middle + (right - left < 1 ? 1 : 0)), 0, width);
      if (x1 - middle > 5) x1 -= 1; // neighbours of one colour stay two
      if (ops.wait[k] >= 0 && middle > x0) box(image, tiles[ops.wait[k]], x0, middle, y0, y1);
      if (x1 > middle) box(image, tiles[ops.state[k]], middle, x1, y0, y1);
    }
  };

  // -------------------------------------------------------------------------------------------------------------------
  // Words

  const NICE = [1, 2, 5];
  /** Distance of ticks of a time axis, at least so many ns. */
  const tickOf = (least) => {
    for (let unit = 1; ; unit *= 10) for (const one of NICE) if (one * unit >= least) return one * unit;
  };
  /** A moment with as many digits as its neighbours need. */
  const moment = (ns, every) => {
    const [unit, name] = every >= 1e8 ? [1e9, "s"] : every >= 1e5 ? [1e6, "ms"] : every >= 1e2 ? [1e3, "µs"] : [1, "ns"];
    const digits = Math.max(0, Math.ceil(-Math.log10(every / unit) - 1e-9));
    return `${(ns / unit).toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits })} ${name}`;
  };

  /** Rows that a filter names: ranks, ranges of them, or a part of a label; null where it names none. */
  const named = (text, rows) => {
    const wanted = text.trim().toLowerCase();
    if (!wanted) return null;
    const range = /^(\d+)\s*(?:[-–]\s*(\d+))?$/.exec(wanted);
    const [low, high] = range ? [Number(range[1]), Number(range[2] === undefined ? range[1] : range[2])] : [0, -1];
    const found = rows.map((row, k) => (range ? row.rank >= low && row.rank <= high : row.label.toLowerCase().includes(wanted)) ? k : -1).filter((k) => k >= 0);
    return found;
  };

  /** What a wait is made of: a bar and its words. */
  const partsOf = (wait, tiles, codes) => {
    const some = PARTS.filter(([key]) => wait[key] > 0);
    const lines = some.map(([key, state]) => el("li", {}, C.swatch(tiles[codes[state]], 14, 10), ` ${taut.ns(wait[key])} ${state.replace(" wait", "")}`));
    return el("ul", { class: "wait-parts" }, lines);
  };

  /** A name without the words that frameworks put before it: those are the same in every row. */
  const bare = (name) => {
    const plain = name.replace(/^gap before /, "").split(": ").pop().split(/(?<=\w)</)[0];
    return plain.split(/::|(?<=[A-Za-z_])\.(?=[A-Za-z_])/).pop().trim() || name;
  };

  const because = { "asked": "", "last at the gate": "which waited for the last to arrive:", "before it on its rank": "which came behind, on the same rank:", "before it in its chain": "which hung on:" };

  // -------------------------------------------------------------------------------------------------------------------
  // The page

  const draw = async (root, context) => {
    const axis = await context.get("axis");
    if (context.signal.aborted) return undefined;
    root.replaceChildren(el("h1", { class: "unseen" }, "Timeline")); // what stood here would be measured as room that is taken
    return new Timeline(root, context, axis).begin();
  };

  class Timeline {
    constructor(root, context, axis) {
      Object.assign(this, { root, context, axis });
      this.states = axis.states;
      this.codes = Object.fromEntries(axis.states.map((name, code) => [name, code]));
      this.most = Math.max(1, ...axis.rows.map((row) => row.lanes.length));
      this.whole = { begin: 0, end: Math.max(axis.wall_ns, 1), first: 0, rows: Math.max(axis.rows.length, 1) };
      this.view = { ...this.whole };
      this.frames = []; // the newest last; the first is of the whole run
      this.details = new Map();
      this.hidden = new Set();
      this.gates = true;
      this.kept = null; // rows that the filter names
      this.cursor = null; // of the keyboard: {row, at}
      this.chosen = null; // OpDetail
      this.sizes = { width: 0, height: 0, ratio: 1 };
      this.asked = null;
      this.named = new Set(axis.named || []);
      this.lanesSeen = false; // whether ops are drawn in lanes
      this.images = {}; // by pixels a CSS pixel
      this.times = C.times; // what drawings took, ms
    }

    begin() {
      this.build();
      this.colour();
      this.place();
      this.take(this.context.params, true);
      this.listen();
      this.overall().then(() => this.ask());
      this.context.signal.addEventListener("abort", () => this.end());
      return (params) => this.take(params, false);
    }

    end() {
      this.watch.disconnect();
      this.card.box.remove();
      if (this.stop) this.stop();
      clearTimeout(this.rest);
      this.remember.cancel();
      if (this.asked) this.asked.abort();
    }

    // -----------------------------------------------------------------------------------------------------------------
    // Elements

    build() {
      const word = `Timeline of ${taut.count(this.axis.rows.length, "rank")}, ${taut.count(this.axis.steps.length, "step")}, ${taut.count(this.axis.ops, "op")}. Arrow keys move the cursor, plus and minus zoom, shift with up or down shows fewer or more ranks, Enter selects, Home and End go to the ends.${this.named.size ? ` Findings name rank ${[...this.named].slice(0, 8).join(", ")}${this.named.size > 8 ? ", …" : ""}: marked at their rows.` : ""}`;
      this.base = el("canvas", { class: "timeline-base", "aria-hidden": "true" });
      this.over = el("canvas", { class: "timeline-over", tabindex: "0", role: "application", "aria-label": word, "aria-roledescription": "timeline" });
      this.map = el("canvas", { class: "timeline-map", "aria-hidden": "true" });
      this.stage = el("div", { class: "timeline-stage" }, this.base, this.over);
      this.where = el("span", { class: "timeline-where" });
      this.busy = el("span", { class: "timeline-busy", "aria-hidden": "true" });
      this.filter = el("input", { type: "search", class: "small", placeholder: "3, 0-63, host", "aria-label": "ranks to show: 3, 0-63, or a part of a name", title: "ranks to show: 3, 0-63, or a part of a name (key /)", "data-filter": "", spellcheck: "false", autocomplete: "off" });
      this.legend = el("div", { class: "timeline-legend", role: "group", "aria-label": "what is shown: press to hide" });
      this.side = el("aside", { class: "timeline-side", "aria-label": "the op that was selected" });
      this.table = taut.fold("What is shown, as a table", el("div", { class: "timeline-table" }));
      const tools = el("div", { class: "timeline-tools" }, el("label", { class: "timeline-filter" }, "ranks ", this.filter),
        this.button("−", "zoom out (−)", () => this.zoom(2)), this.button("+", "zoom in (+)", () => this.zoom(0.5)), this.button("whole run", "show everything (Home twice)", () => this.travel(this.whole)),
        this.where, this.busy, el("span", { class: "timeline-space" }), taut.source.live && this.button("open in Perfetto", "the raw ops in ui.perfetto.dev: it asks first", () => this.perfetto()));
      this.root.append(el("div", { class: "timeline" }, tools, this.legend, el("div", { class: "timeline-body" }, el("div", { class: "timeline-left" }, this.map, this.stage), this.side), this.table));
      this.card = C.card(document.body);
      this.aside();
    }

    button(text, title, run) { return el("button", { type: "button", class: "small", title, on: { click: run } }, text); }

    colour() {
      this.colours = C.palette();
      this.tiles = this.states.map((state) => C.tile(state, this.colours, this.hidden.has(state)));
      this.full = this.states.map((state) => C.tile(state, this.colours, false));
      this.paper = C.packed(C.rgb(this.colours.paper));
      this.font = getComputedStyle(document.body).fontFamily;
      const item = (name, mark, pressed, turn, title) => el("button", { type: "button", class: "legend-item", "aria-pressed": String(pressed), title, on: { click: turn } }, mark, name);
      const items = this.states.map((state, code) => item(state, C.swatch(this.full[code]), !this.hidden.has(state), () => this.toggle(state), C.MEANING[state]));
      const gate = el("span", { class: "gate-mark", "aria-hidden": "true" }, "◆");
      items.push(item("gates", gate, this.gates, () => this.toggle(null), "where ranks wait for each other: a line at the opening, over those who meet; the diamond is who came last"));
      const at = [...this.legend.children].indexOf(document.activeElement);
      this.legend.replaceChildren(...items);
      if (at >= 0) this.legend.children[at].focus();
      this.mapDrawn = null;
      this.redraw();
      if (this.chosen) this.aside();
    }

    toggle(state) {
      if (state === null) this.gates = !this.gates;
      else if (!this.hidden.delete(state)) this.hidden.add(state);
      this.colour();
      this.remember();
    }

    above() { return Math.round(this.stage.getBoundingClientRect().top + window.scrollY); }

    /** Takes the room that the window leaves. */
    place() {
      this.top = this.above();
      const width = Math.max(320, this.stage.clientWidth);
      const height = Math.max(240, Math.round(window.innerHeight - this.top - 40));
      const { ratio } = C.fit(this.base, width, height);
      C.fit(this.over, width, height);
      C.fit(this.map, width, MAP);
      this.stage.style.height = height + "px";
      this.side.style.maxHeight = height + MAP + 6 + "px";
      this.sizes = { width, height, ratio };
      this.device = ratio;
      this.mapDrawn = null;
      const pen = this.base.getContext("2d");
      pen.font = "600 12px " + getComputedStyle(document.body).fontFamily;
      pen.save();
      pen.font = "10px " + getComputedStyle(document.body).fontFamily;
      this.laneWide = between(Math.max(0, ...this.axis.rows.slice(0, 64).flatMap((row) => row.lanes.map((lane) => C.textWidth(pen, taut.safe(lane))))) + 12, 24, LANES);
      pen.restore();
      this.wide = between(Math.max(...this.axis.rows.map((row) => C.textWidth(pen, taut.safe(row.label)))) + (this.named.size ? 22 : 14), ...GUTTER);
    }

    get gutter() { return this.wide + (this.split && this.lanesSeen ? this.laneWide : 0); }
    get plot() { return { x: this.gutter, y: HEAD, width: this.sizes.width - this.gutter - 2, height: this.sizes.height - HEAD - 2 }; }
    /** Whether rows are split by lanes: where each has room for letters. */
    get split() { return this.most > 1 && (this.sizes.height - HEAD) / this.view.rows / this.most >= 9; }
    lanesOf(row) { return Math.max(1, this.axis.rows[row] ? this.axis.rows[row].lanes.length : 1); }

    // -----------------------------------------------------------------------------------------------------------------
    // What is shown

    /** Shows what an address says. */
    take(params, first) {
      const wall = this.whole;
      this.hidden = new Set(String(params.hide || "").split(",").filter((one) => one in this.codes));
      this.gates = params.gates !== "0";
      this.filter.value = params.ranks || "";
      this.kept = named(this.filter.value, this.axis.rows);
      const view = { begin: number(params.begin), end: number(params.end), first: number(params.first), rows: number(params.rows) };
      const step = this.axis.steps.find((one) => one.step === number(params.step));
      if (view.begin === null && step) [view.begin, view.end] = this.around(step);
      if (view.first === null && this.kept && this.kept.length) Object.assign(view, this.span(this.kept));
      const row = this.axis.rows.findIndex((one) => one.rank === number(params.rank));
      taut.unknown(params, { step: Boolean(step), rank: row >= 0 });
      if (row >= 0) this.cursor = { row, at: view.begin === null ? 0 : (view.begin + view.end) / 2 };
      if (view.first === null && row >= 0 && wall.rows > 64) [view.first, view.rows] = [row - 16, 32];
      for (const key of Object.keys(view)) if (view[key] === null) view[key] = wall[key];
      this.view = this.bounded(view);
      this.colour();
      if (number(params.op) !== null) this.choose({ op: number(params.op) }, false);
      else if (!first) { this.chosen = null; this.aside(); }
      if (!first) this.changed(false);
    }

    around(step) { const more = (step.end_ns - step.begin_ns) * 0.02; return [step.begin_ns - more, step.end_ns + more]; }
    span(rows) { return { first: rows[0], rows: rows[rows.length - 1] - rows[0] + 1 }; }

    bounded(view) {
      const { whole } = this;
      const length = between(view.end - view.begin, Math.min(SPAN, whole.end), whole.end);
      const begin = between(view.begin, 0, whole.end - length);
      const rows = between(view.rows, 1, whole.rows);
      return { begin, end: begin + length, first: between(view.first, 0, whole.rows - rows), rows };
    }

    show(view) { this.view = this.bounded(view); this.changed(true); }

    changed(kept) {
      this.redraw();
      this.ask();
      if (kept) this.remember();
    }

    /** Goes there, in a short movement, so that the eye can follow. */
    travel(target) {
      if (this.stop) this.stop();
      const from = this.view, to = this.bounded(target);
      this.stop = C.motion(180, (at) => {
        const share = at * (2 - at);
        const mid = (key) => (at === 1 ? to[key] : from[key] + (to[key] - from[key]) * share);
        this.view = this.bounded({ begin: mid("begin"), end: mid("end"), first: mid("first"), rows: mid("rows") });
        at === 1 ? this.changed(true) : this.redraw();
      });
    }

    zoom(factor, x = null) {
      const { begin, end } = this.view;
      const at = x !== null ? x : this.cursor && this.cursor.at >= begin && this.cursor.at <= end ? this.cursor.at : (begin + end) / 2;
      const length = between((end - begin) * factor, Math.min(SPAN, this.whole.end), this.whole.end);
      const share = (at - begin) / (end - begin);
      this.show({ ...this.view, begin: at - share * length, end: at + (1 - share) * length });
    }

    zoomRows(factor, at = null) {
      const { first, rows } = this.view;
      const middle = at !== null ? at : this.cursor ? this.cursor.row + 0.5 : first + rows / 2;
      const many = between(rows * factor, 1, this.whole.rows);
      const share = between((middle - first) / rows, 0, 1);
      this.show({ ...this.view, first: middle - share * many, rows: many });
    }

    params() {
      const { view, whole } = this, out = {};
      if (view.begin > 0 || view.end < whole.end) Object.assign(out, { begin: Math.round(view.begin), end: Math.round(view.end) });
      if (view.first > 0 || view.rows < whole.rows) Object.assign(out, { first: +view.first.toFixed(2), rows: +view.rows.toFixed(2) });
      if (this.filter.value.trim()) out.ranks = this.filter.value.trim();
      if (this.hidden.size) out.hide = [...this.hidden].join(",");
      if (!this.gates) out.gates = "0";
      if (this.chosen) out.op = this.chosen.op;
      return out;
    }

    // -----------------------------------------------------------------------------------------------------------------
    // Answers

    get(name, params, signal) { return taut.source.get(this.context.run, name, params, signal || this.context.signal); }

    /** A frame around a view: with as much at its sides as ops can be shown one by one. */
    request(view, wide) {
      const plot = this.plot, many = Math.min(1.5, this.device), length = view.end - view.begin;
      const ops = this.axis.ops * length / this.whole.end * view.rows / this.whole.rows;
      const more = !wide ? 0 : [0.5, 0.3, 0.1].find((share) => ops * (1 + 2 * share) * (1 + share) < SINGLE) || (ops > SINGLE ? 0.5 : 0);
      const begin = Math.max(0, Math.floor(view.begin - more * length)), end = Math.min(this.whole.end, Math.ceil(view.end + more * length));
      const first = Math.max(0, Math.floor(view.first - 0.5 * more * view.rows)), last = Math.min(this.whole.rows, Math.ceil(view.first + view.rows * (1 + 0.5 * more)));
      const columns = Math.round(plot.width * many * (end - begin) / length), lines = Math.round(plot.height * many * (last - first) / view.rows);
      return { begin_ns: begin, end_ns: end, first_row: first, rows: last - first, columns: between(columns, 16, MOST_COLUMNS), lines: between(Math.min(last - first, lines), 1, MOST_LINES) };
    }

    async overall() {
      try {
        this.frames[0] = prepared(await this.get("frame", this.request(this.whole, false)), this.states);
        this.mapDrawn = null;
        this.redraw();
        this.listed();
      } catch (error) { this.failed(error); }
    }

    /** The frame that serves what is shown, if one does. */
    serving() { return this.frames.find((frame) => covers(frame, this.view) && this.enough(frame)); }
    enough(frame) {
      const needed = (this.view.end - this.view.begin) / this.plot.width;
      const rows = frame.rows / frame.lines <= Math.max(1, this.view.rows / this.plot.height) * 1.05;
      return frame.drawn !== null || (coarseness(frame) <= needed * 1.05 && rows);
    }

    /** Asks for a frame once nothing has moved for a moment; what is stale is given up. */
    ask() {
      clearTimeout(this.timer);
      if (!this.frames[0]) return;
      if (this.serving()) { this.listed(); if (this.busy.classList.contains("bad")) this.tell(""); this.fineness(); return; }
      this.timer = setTimeout(() => this.fetch(), 60);
    }

    async fetch() {
      const wanted = this.request(this.view, true), key = JSON.stringify(wanted);
      if (key === this.last) return;
      if (this.asked) this.asked.abort();
      const mine = (this.asked = new AbortController());
      this.last = key;
      this.tell("…");
      try {
        const frame = prepared(await this.get("frame", wanted, mine.signal), this.states);
        if (mine.signal.aborted || this.context.signal.aborted) return;
        this.frames = [this.frames[0], ...this.frames.slice(1).slice(-5), frame];
        this.redraw();
        this.listed();
        if (taut.source.live) this.ask();
        else this.tell("");
        this.fineness();
      } catch (error) { if (!mine.signal.aborted) { this.last = null; this.failed(error); } }
      if (mine === this.asked && this.busy.textContent === "…") this.tell("");
    }

    /** Says where a file has nothing finer than what is shown. */
    fineness() {
      const frame = this.serving();
      if (!taut.source.live && frame) this.tell(frame.finest ? "as fine as this file is" : "");
    }

    failed(error) {
      if (C.stale(error) || this.context.signal.aborted) return;
      this.tell(`not drawn: ${taut.safe(error.message || error)}`, true);
      this.context.live(this.busy.textContent);
    }

    /** A word beside the tools; what went wrong stays until a frame serves what is shown. */
    tell(text, bad = false) {
      this.busy.textContent = text;
      this.busy.classList.toggle("bad", bad);
    }

    async detail(query, signal) {
      const key = query.op !== undefined ? query.op : null;
      if (key !== null && this.details.has(key)) return this.details.get(key);
      const found = await this.get("op", query, signal);
      if (this.details.size > 500) this.details.clear();
      this.details.set(found.op, found);
      return found;
    }

    // -----------------------------------------------------------------------------------------------------------------
    // Drawing

    /** From times and rows to device pixels of the plot, and back. */
    places() {
      const { view, sizes } = this, plot = this.plot, { ratio } = sizes;
      const width = Math.round(plot.width * ratio), tall = Math.round(plot.height * ratio);
      const sx = width / (view.end - view.begin), height = tall / view.rows, split = this.split;
      return {
        x: (ns) => (ns - view.begin) * sx, y: (row) => (row - view.first) * height, time: (x) => view.begin + x / sx, row: (y) => view.first + y / height,
        height, gap: height >= 8 * ratio ? Math.max(1, Math.min(4, 0.12 * height)) : height >= 4 ? 1 : 0, line: split ? ratio : 0, split, width, tall, ratio,
      };
    }

    paint() {
      const began = performance.now();
      this.sizes.ratio = this.moving() ? 1 : this.device;
      const { pen } = C.fit(this.base, this.sizes.width, this.sizes.height);
      const at = this.places();
      pen.fillStyle = this.colours.paper;
      pen.fillRect(0, 0, this.sizes.width, this.sizes.height);
      this.lay(pen, this.pixels(at));
      this.makeRoom();
      this.heads(pen, at);
      this.labels(pen, at);
      this.names(pen, at);
      if (this.gates) this.drawGates(pen, at);
      this.paintMap();
      this.paintOver();
      this.where.textContent = this.words();
      this.times.push(performance.now() - began);
      if (this.times.length > 240) this.times.shift();
    }

    /** Words of lanes have room where ops are drawn in lanes; changed once a view at most, since room decides on frames, too. */
    makeRoom() {
      const frame = this.serving(), { begin, end, first, rows } = this.view, now = `${begin} ${end} ${first} ${rows}`;
      if (!frame || Boolean(frame.drawn) === this.lanesSeen || this.roomFor === now) return;
      Object.assign(this, { lanesSeen: Boolean(frame.drawn), roomFor: now, mapDrawn: null });
      this.redraw();
    }

    /** Whether the view was another one just now: then a fine screen gets a coarser image, and the fine one once it rests. */
    moving() {
      const { begin, end, first, rows } = this.view, now = `${begin} ${end} ${first} ${rows}`, moved = this.before !== undefined && this.before !== now;
      this.before = now;
      if (this.device > 1 && moved) { clearTimeout(this.rest); this.rest = setTimeout(() => this.redraw(), 120); }
      return this.device > 1 && moved;
    }

    lay(pen, image) {
      const plot = this.plot, { device } = this;
      if (this.sizes.ratio === device) { pen.putImageData(image, Math.round(plot.x * device), Math.round(plot.y * device)); return; }
      this.coarse = this.coarse || document.createElement("canvas");
      if (this.coarse.width !== image.width || this.coarse.height !== image.height) [this.coarse.width, this.coarse.height] = [image.width, image.height];
      this.coarse.getContext("2d").putImageData(image, 0, 0);
      pen.imageSmoothingEnabled = false;
      pen.drawImage(this.coarse, plot.x, plot.y, plot.width, plot.height);
    }

    /** The part of the timeline that changes with every movement, as an image. */
    pixels(at) {
      const kept = this.images[at.ratio];
      if (!kept || kept.width !== at.width || kept.height !== at.tall) {
        const image = new ImageData(at.width, at.tall);
        this.images[at.ratio] = { image, data: new Uint32Array(image.data.buffer), width: at.width, height: at.tall };
      }
      const image = this.images[at.ratio];
      image.paper = this.paper;
      const best = this.serving();
      const some = best ? [best] : this.frames.filter((frame) => frame && touches(frame, this.view)).sort((a, b) => coarseness(b) - coarseness(a)).slice(-3);
      if (!best || !covers(best, this.view)) image.data.fill(this.paper);
      this.shown = some;
      for (const frame of some) frame.bytes ? paintCells(image, frame, at, this.tiles) : paintOps(image, frame, at, this.tiles, (row) => this.lanesOf(row));
      if (this.kept) this.dim(image, at);
      return image.image;
    }

    /** Rows that the filter does not name, between those that it does. */
    dim(image, at) {
      const kept = new Set(this.kept), { first, rows } = this.view;
      for (let row = Math.floor(first); row < first + rows; row++) {
        if (kept.has(row)) continue;
        const y0 = between(Math.round(at.y(row)), 0, image.height), y1 = between(Math.round(at.y(row + 1)), 0, image.height);
        image.data.fill(this.paper, y0 * image.width, y1 * image.width);
      }
    }

    heads(pen, at) {
      const plot = this.plot, { view, colours } = this, { ratio } = this.sizes;
      pen.save();
      pen.beginPath();
      pen.rect(plot.x, 0, plot.width, this.sizes.height);
      pen.clip();
      pen.font = "11px " + this.font;
      pen.textBaseline = "middle";
      const steps = this.axis.steps.filter((step) => step.end_ns >= view.begin && step.begin_ns <= view.end);
      const wide = plot.width / Math.max(1, (view.end - view.begin) / (this.whole.end / Math.max(1, this.axis.steps.length)));
      pen.strokeStyle = colours.muted;
      pen.globalAlpha = 0.55;
      pen.beginPath();
      for (const step of wide >= 4 ? steps : []) {
        const x = Math.round(plot.x + at.x(step.begin_ns) / ratio) + 0.5;
        pen.moveTo(x, 2);
        pen.lineTo(x, wide >= 24 ? this.sizes.height : HEAD);
      }
      pen.stroke();
      pen.globalAlpha = 1;
      pen.fillStyle = colours.ink;
      this.stepWords(pen, at, steps, tickOf(Math.max(1, 34 / wide)));
      this.ticks(pen, at);
      pen.restore();
    }

    /** Numbers of steps where there is room; of consecutive ones the round ones. */
    stepWords(pen, at, steps, every) {
      const plot = this.plot, { ratio } = this.sizes, round = steps.length > 1 && steps[1].step === steps[0].step + 1;
      let free = plot.x;
      for (const step of steps) {
        const left = Math.max(plot.x, plot.x + at.x(step.begin_ns) / ratio), text = plot.x + at.x(step.end_ns) / ratio - left > 62 ? `step ${step.step}` : String(step.step);
        const end = left + C.textWidth(pen, text) + 10;
        if ((round && step.step % every) || left < free || end > plot.x + plot.width) continue;
        pen.fillText(text, left + 4, 9);
        free = end;
      }
    }

    ticks(pen, at) {
      const plot = this.plot, { view, colours } = this, { ratio } = this.sizes;
      const every = tickOf((view.end - view.begin) / plot.width * 86);
      pen.fillStyle = colours.muted;
      pen.strokeStyle = colours.grid;
      pen.beginPath();
      for (let t = Math.ceil(view.begin / every) * every; t <= view.end; t += every) {
        const x = plot.x + at.x(t) / ratio;
        pen.moveTo(Math.round(x) + 0.5, 20);
        pen.lineTo(Math.round(x) + 0.5, HEAD);
        if (x + 8 + C.textWidth(pen, moment(t, every)) < plot.x + plot.width) pen.fillText(moment(t, every), x + 4, 26);
      }
      pen.moveTo(plot.x, HEAD - 0.5);
      pen.lineTo(plot.x + plot.width, HEAD - 0.5);
      pen.stroke();
    }

    labels(pen, at) {
      const { view, colours, axis } = this, plot = this.plot, { ratio } = this.sizes, height = at.height / ratio;
      const every = tickOf(Math.max(1, 13 / height)), lanes = at.split && this.shown.some((frame) => frame.drawn);
      pen.save();
      pen.beginPath();
      pen.rect(0, plot.y, plot.x, plot.height);
      pen.clip();
      pen.textBaseline = "middle";
      for (let row = Math.max(0, Math.floor(view.first)); row < Math.min(axis.rows.length, view.first + view.rows); row++) {
        const top = plot.y + at.y(row) / ratio, chosen = this.chosen && axis.rows[row].rank === this.chosen.rank;
        if (this.named.has(axis.rows[row].rank)) this.mark(pen, plot.x, top, height);
        if (row % every && !chosen) continue;
        pen.font = (chosen ? "600 " : "") + "12px " + this.font;
        pen.fillStyle = this.kept && !this.kept.includes(row) ? colours.muted : colours.ink;
        pen.textAlign = "left";
        const middle = between(top + height / 2, Math.max(plot.y + 7, top + 6), Math.max(plot.y + 7, top + height - 6));
        if (every === 1 || !chosen || !(row % every)) pen.fillText(C.short(pen, taut.safe(axis.rows[row].label), (lanes ? this.wide : plot.x) - 8), 4, middle);
        if (lanes) this.laneWords(pen, row, top, (height - at.gap / ratio) / this.lanesOf(row));
      }
      pen.restore();
    }

    /** Beside the row of a rank that findings name: a triangle where there is room, and a bar as high as the row. */
    mark(pen, right, top, height) {
      pen.fillStyle = this.colours.slow;
      pen.fillRect(right - 4, top, 3, Math.max(2, height - 1));
      const y = top + height / 2;
      pen.beginPath();
      pen.moveTo(right - 12, y - 4);
      pen.lineTo(right - 5, y);
      pen.lineTo(right - 12, y + 4);
      pen.closePath();
      pen.fill();
    }

    laneWords(pen, row, top, tall) {
      if (tall < 10) return;
      pen.font = "10px " + this.font;
      pen.fillStyle = this.colours.muted;
      pen.textAlign = "right";
      this.axis.rows[row].lanes.forEach((lane, k) => pen.fillText(C.short(pen, taut.safe(lane), this.laneWide - 6), this.gutter - 6, top + tall * (k + 0.5)));
    }

    /** Names of ops that have room for them. */
    names(pen, at) {
      const plot = this.plot, { ratio } = this.sizes;
      pen.save();
      pen.beginPath();
      pen.rect(plot.x, plot.y, plot.width, plot.height);
      pen.clip();
      pen.font = "10px " + this.font;
      pen.textBaseline = "middle";
      pen.textAlign = "left";
      let left = 400;
      for (const frame of this.shown) {
        const ops = frame.drawn;
        for (let k = 0; ops && k < ops.size && left > 0; k++) {
          const from = Math.max(0, at.x(ops.opening[k])), to = Math.min(at.width, at.x(ops.end[k]));
          if (to - from < 44 * ratio || this.hidden.has(this.states[ops.state[k]])) continue;
          const lanes = at.split ? this.lanesOf(ops.row[k]) : 1, tall = (at.height - at.gap) / lanes;
          if (tall < 11 * ratio || (!at.split && this.most > 1 && ops.lane[k] > 0)) continue;
          const y = plot.y + (at.y(ops.row[k]) + tall * ((at.split ? ops.lane[k] : 0) + 0.5)) / ratio;
          const text = C.short(pen, taut.safe(frame.names[ops.name[k]]), (to - from) / ratio - 8);
          if (!text) continue;
          left -= 1;
          pen.fillStyle = this.onTile(ops.state[k]);
          pen.fillText(text, plot.x + from / ratio + 4, y);
        }
      }
      pen.restore();
    }

    /** Ink that can be read on a state's pattern. */
    onTile(code) {
      const value = this.full[code][9];
      return C.inkOn([value & 255, (value >> 8) & 255, (value >> 16) & 255]);
    }

    /** A line over those who meet, at the opening; from the first arrival a thin one; who came last has a diamond. */
    drawGates(pen, at) {
      const plot = this.plot, { ratio } = this.sizes;
      const frame = this.shown[this.shown.length - 1];
      if (!frame) return;
      const px = (ns) => plot.x + at.x(ns) / ratio, py = (row) => plot.y + at.y(row) / ratio, height = at.height / ratio;
      pen.save();
      pen.beginPath();
      pen.rect(plot.x, plot.y, plot.width, plot.height);
      pen.clip();
      const { gates } = frame, seen = gates.gate.map((_, k) => k).filter((k) => gates.rows[k].length > 1 && px(gates.opens_ns[k]) >= plot.x && px(gates.first_ns[k]) <= plot.x + plot.width);
      const apart = plot.width / Math.max(1, seen.length), far = apart < 22;
      const taken = new Uint8Array(Math.ceil(plot.width) + 16), room = far ? 5 : 9;
      const waited = (k) => gates.opens_ns[k] - gates.first_ns[k];
      for (const k of seen.sort((a, b) => waited(b) - waited(a))) {
        const x = px(gates.opens_ns[k]), column = Math.round(x - plot.x);
        if (column >= taken.length || taken[column]) continue;
        taken.fill(1, Math.max(0, column - room), column + room + 1);
        if (!far) this.bracket(pen, gates.rows[k], gates.last_row[k], px(gates.first_ns[k]), x, py, height);
        this.diamond(pen, x, py(gates.last_row[k]) + 0.44 * height, far ? between(height * 0.2, 2, 4) : between(height * 0.3, 3, 6));
      }
      pen.restore();
    }

    /** The line of a gate over its members, with a tick at each, and a thin one from the first arrival to the opening. */
    bracket(pen, rows, last, from, x, py, height) {
      const plot = this.plot, low = Math.min(...rows, last), high = Math.max(...rows, last), top = Math.max(py(low) + 0.1 * height, plot.y + 1);
      pen.strokeStyle = this.colours.ink;
      pen.globalAlpha = 0.85;
      pen.lineWidth = 1;
      pen.beginPath();
      pen.moveTo(Math.round(x) + 0.5, top);
      pen.lineTo(Math.round(x) + 0.5, py(high) + 0.8 * height);
      if (height >= 6) for (const row of rows) { pen.moveTo(x - 2, py(row) + 0.44 * height); pen.lineTo(x + 3, py(row) + 0.44 * height); }
      pen.moveTo(Math.max(from, plot.x - 2), top);
      pen.lineTo(x, top);
      pen.stroke();
      pen.globalAlpha = 1;
    }

    diamond(pen, x, y, size) {
      pen.beginPath();
      pen.moveTo(x - size, y);
      pen.lineTo(x, y - size);
      pen.lineTo(x + size, y);
      pen.lineTo(x, y + size);
      pen.closePath();
      pen.fillStyle = this.colours.ink;
      pen.fill();
      pen.lineWidth = 1;
      pen.strokeStyle = this.colours.paper;
      pen.stroke();
    }

    /** The whole run, and where the view is in it. */
    paintMap() {
      const { pen, ratio, width } = C.fit(this.map, this.sizes.width, MAP);
      const left = this.gutter, wide = width - left - 2, frame = this.frames[0];
      pen.fillStyle = this.colours.paper;
      pen.fillRect(0, 0, width, MAP);
      if (frame && (!this.mapDrawn || this.mapWide !== wide)) this.drawMap(frame, Math.round(wide * ratio), Math.round((MAP - 6) * ratio), wide);
      if (this.mapDrawn) pen.drawImage(this.mapDrawn, left, 3, wide, MAP - 6);
      pen.font = "11px " + this.font;
      pen.fillStyle = this.colours.muted;
      pen.textBaseline = "middle";
      pen.fillText("whole run", 4, MAP / 2);
      const { view, whole } = this, x0 = left + wide * view.begin / whole.end, x1 = left + wide * view.end / whole.end;
      const y0 = 3 + (MAP - 6) * view.first / whole.rows, y1 = 3 + (MAP - 6) * (view.first + view.rows) / whole.rows;
      pen.fillStyle = this.colours.paper;
      pen.globalAlpha = 0.62;
      pen.fillRect(left, 0, x0 - left, MAP);
      pen.fillRect(x1, 0, left + wide - x1, MAP);
      pen.globalAlpha = 1;
      pen.strokeStyle = this.colours.ink;
      pen.lineWidth = 1.5;
      pen.strokeRect(Math.min(x0, left + wide - 4), y0 - 1, Math.max(4, x1 - x0), Math.max(4, y1 - y0 + 2));
    }

    drawMap(frame, width, tall, wide) {
      const image = new ImageData(width, tall), buffer = { data: new Uint32Array(image.data.buffer), width, height: tall, paper: this.paper };
      buffer.data.fill(this.paper);
      const sx = width / this.whole.end, height = tall / this.whole.rows;
      const at = { x: (ns) => ns * sx, y: (row) => row * height, time: (x) => x / sx, row: (y) => y / height, height, gap: 0, line: 0, split: false };
      frame.bytes ? paintCells(buffer, frame, at, this.tiles) : paintOps(buffer, frame, at, this.tiles, () => 1);
      this.mapDrawn = Object.assign(document.createElement("canvas"), { width, height: tall });
      this.mapDrawn.getContext("2d").putImageData(image, 0, 0);
      this.mapWide = wide;
    }

    words() {
      const { view, axis } = this;
      const steps = axis.steps.filter((step) => step.end_ns > view.begin && step.begin_ns < view.end);
      const which = steps.length ? taut.span(steps[0].step, steps[steps.length - 1].step) : "between steps";
      const many = Math.round(view.rows), ranks = many >= axis.rows.length ? taut.count(axis.rows.length, "rank") : `${taut.count(many)} of ${taut.count(axis.rows.length)} ranks`;
      return `${which} · ${taut.ns(view.end - view.begin)} · ${ranks}`;
    }

    // -----------------------------------------------------------------------------------------------------------------
    // What lies above: the cursor, what was chosen, its path

    paintOver() {
      const { pen } = C.fit(this.over, this.sizes.width, this.sizes.height);
      pen.clearRect(0, 0, this.sizes.width, this.sizes.height);
      const at = this.places(), plot = this.plot;
      pen.save();
      pen.beginPath();
      pen.rect(plot.x, plot.y - 2, plot.width, plot.height + 4);
      pen.clip();
      if (this.chosen) this.drawPath(pen, at);
      if (this.focused) this.drawFocused(pen, at, this.focused);
      if (this.cursor && document.activeElement === this.over) this.drawCursor(pen, at);
      pen.restore();
    }

    drawCursor(pen, at) {
      const plot = this.plot, { ratio } = this.sizes, x = Math.round(plot.x + at.x(this.cursor.at) / ratio) + 0.5;
      const y = plot.y + at.y(this.cursor.row) / ratio;
      pen.strokeStyle = this.colours.ink;
      pen.setLineDash([4, 3]);
      pen.lineWidth = 1;
      pen.beginPath();
      pen.moveTo(x, plot.y);
      pen.lineTo(x, plot.y + plot.height);
      pen.stroke();
      pen.setLineDash([]);
      pen.lineWidth = 2;
      pen.strokeStyle = this.colours.accent;
      pen.strokeRect(plot.x + 1, y, plot.width - 2, at.height / ratio);
    }

    /** Middle of an op on the screen, in its lane where lanes are shown. */
    level(at, op, row) {
      const { ratio } = this.sizes, tall = (at.height - at.gap) / ratio;
      let share = 0.5;
      if (at.split) { const lane = this.laneOf(op); if (lane !== null) share = (lane + 0.5) / this.lanesOf(row); }
      return this.plot.y + at.y(row) / ratio + tall * share;
    }

    laneOf(op) {
      for (const frame of this.shown || []) {
        if (!frame.drawn) continue;
        if (!frame.index) frame.index = new Map(Array.from(frame.drawn.op, (one, k) => [one, k]));
        if (frame.index.has(op)) return frame.drawn.lane[frame.index.get(op)];
      }
      return null;
    }

    /** Points of the path, from what was asked back to the root. */
    points(at) {
      const { path } = this.chosen, { ratio } = this.sizes, px = (ns) => this.plot.x + at.x(ns) / ratio, out = [];
      path.forEach((op, k) => {
        const y = this.level(at, op.op, op.row), next = path[k + 1];
        const back = next && next.because === "last at the gate" ? op.opening_ns : op.begin_ns;
        if (k === 0) out.push([px(op.opening_ns > op.begin_ns ? op.opening_ns : op.end_ns), y]);
        else out.push([out[out.length - 1][0], y]);
        if (k && op.because !== "last at the gate") out.push([px(op.end_ns), y]);
        out.push([px(back), y]);
      });
      return out;
    }

    drawPath(pen, at) {
      const points = this.points(at), { ratio } = this.sizes, first = this.chosen.path[0];
      this.drawFocused(pen, at, { op: this.chosen.op, row: first ? first.row : 0, begin_ns: this.chosen.begin_ns, end_ns: this.chosen.end_ns });
      pen.lineJoin = "round";
      for (const [colour, width] of [[this.colours.paper, 6], [this.colours.ink, 2.5]]) {
        pen.strokeStyle = colour;
        pen.lineWidth = width;
        pen.beginPath();
        points.forEach(([x, y], k) => (k ? pen.lineTo(x, y) : pen.moveTo(x, y)));
        pen.stroke();
      }
      if (this.chosen.root === null) return;
      const root = this.chosen.path[this.chosen.root], x0 = this.plot.x + at.x(root.opening_ns) / ratio, x1 = this.plot.x + at.x(root.end_ns) / ratio;
      this.rootMark(pen, (x0 + x1) / 2, this.level(at, root.op, root.row));
    }

    rootMark(pen, x, y) {
      pen.beginPath();
      pen.arc(x, y, 7, 0, 7);
      pen.fillStyle = this.colours.paper;
      pen.fill();
      pen.lineWidth = 3;
      pen.strokeStyle = this.colours.ink;
      pen.stroke();
      pen.font = "600 11px " + this.font;
      pen.textBaseline = "middle";
      const text = "root cause", wide = C.textWidth(pen, text) + 10, plot = this.plot;
      const left = x + 12 + wide > plot.x + plot.width ? x - 12 - wide : x + 12;
      pen.fillStyle = this.colours.ink;
      pen.fillRect(left, y - 9, wide, 18);
      pen.fillStyle = this.colours.paper;
      pen.textAlign = "left";
      pen.fillText(text, left + 5, y + 0.5);
    }

    drawFocused(pen, at, op) {
      const plot = this.plot, { ratio } = this.sizes, x = plot.x + at.x(op.begin_ns) / ratio;
      const lane = at.split ? this.laneOf(op.op) : null, tall = (at.height - at.gap) / ratio / (lane === null ? 1 : this.lanesOf(op.row));
      const y = plot.y + at.y(op.row) / ratio + (lane === null ? 0 : tall * lane);
      pen.lineWidth = 2;
      pen.strokeStyle = this.colours.ink;
      pen.strokeRect(x - 1, y, Math.max(3, at.x(op.end_ns) / ratio + plot.x - x + 1), Math.max(3, tall));
    }

    // -----------------------------------------------------------------------------------------------------------------
    // What is under a point

    /** Row and moment at a place of the canvas; null outside the plot. */
    under(event) {
      const box = this.over.getBoundingClientRect(), plot = this.plot, at = this.places(), { ratio } = this.sizes;
      const x = event.clientX - box.left, y = event.clientY - box.top;
      const row = Math.floor(at.row((y - plot.y) * ratio)), time = at.time((x - plot.x) * ratio);
      const inside = x >= plot.x && x < plot.x + plot.width && y >= plot.y && row >= 0 && row < this.axis.rows.length;
      const within = (y - plot.y) * ratio - at.y(row);
      return { x, y, row, at: time, inside, lane: at.split ? Math.floor(within / ((at.height - at.gap) / this.lanesOf(row))) : null };
    }

    /** What the last frame says about a moment of a row: {op} of a drawn op, {state} of a cell. */
    local(place) {
      for (const frame of [...(this.shown || [])].reverse()) {
        if (place.at < frame.begin_ns || place.at > frame.end_ns || place.row < frame.first_row || place.row >= frame.first_row + frame.rows) continue;
        if (frame.drawn) return this.hit(frame, place);
        const line = between(Math.floor((place.row - frame.first_row) * frame.lines / frame.rows), 0, frame.lines - 1);
        const column = between(Math.floor((place.at - frame.begin_ns) / (frame.end_ns - frame.begin_ns) * frame.columns), 0, frame.columns - 1);
        const code = frame.bytes[line * frame.columns + column];
        return { state: code === 255 ? null : this.states[code] };
      }
      return { state: null };
    }

    hit(frame, place) {
      const ops = frame.drawn, reach = (this.view.end - this.view.begin) / this.plot.width;
      for (let k = ops.size - 1; k >= 0; k--) {
        if (ops.row[k] !== place.row || (place.lane !== null && ops.lane[k] !== place.lane)) continue;
        if (place.at >= ops.begin[k] && place.at <= Math.max(ops.end[k], ops.begin[k] + reach)) {
          return { op: ops.op[k], name: frame.names[ops.name[k]], begin: ops.begin[k], opening: ops.opening[k], end: ops.end[k], state: this.states[ops.state[k]], wait: ops.wait[k] < 0 ? null : this.states[ops.wait[k]], lane: ops.lane[k] };
        }
      }
      return { state: null };
    }

    stepAt(ns) { return this.axis.steps.find((step) => ns >= step.begin_ns && ns <= step.end_ns); }

    /** What is said at once, from what is drawn. */
    brief(place, found) {
      const row = this.axis.rows[place.row], step = this.stepAt(place.at);
      const where = `${row.label}${step ? ` · step ${step.step}` : ""}`;
      if (found.op === undefined) return { title: found.state || "nothing", lines: [where, found.state ? C.MEANING[found.state] : "no op here"] };
      const lines = [`${where}${row.lanes[found.lane] ? ` · ${row.lanes[found.lane]}` : ""}`];
      if (found.opening > found.begin && found.wait) lines.push(`waits ${taut.ns(found.opening - found.begin)}: ${found.wait}`);
      lines.push(`works ${taut.ns(found.end - found.opening)}: ${found.state}`);
      return { title: found.name, lines };
    }

    cardOf(brief, detail) {
      const out = [el("strong", {}, C.middle(brief.title, 90)), ...brief.lines.map((line) => el("div", {}, line))];
      if (!detail) return out;
      out.length = 0;
      out.push(el("strong", {}, C.middle(detail.name, 90)), el("div", {}, `${detail.label} · step ${detail.step} · ${detail.lane}`));
      out.push(el("div", {}, `works ${taut.ns(detail.work_ns)}${detail.reference_ns === null ? "" : `, its reference is ${taut.ns(detail.reference_ns)}`}`));
      if (detail.wait) out.push(el("div", {}, `waits ${taut.ns(detail.wait.wait_ns)}${detail.last_label ? ` for ${detail.last_label}` : ""}`), partsOf(detail.wait, this.full, this.codes));
      const root = detail.root === null ? null : detail.path[detail.root];
      if (root && root.op !== detail.op) out.push(el("div", { class: "blame" }, `Root cause: ${root.label}, ${C.middle(root.name, 60)}${this.extra(root)}`));
      out.push(el("div", { class: "muted" }, "click: the path back to its cause"));
      return out;
    }

    extra(op) {
      if (op.excess_ns > 0 && op.excess_ns >= op.gap_ns) return ` (${taut.signed(op.excess_ns, taut.ns)} over its reference)`;
      return op.gap_ns > 0 ? ` (${taut.ns(op.gap_ns)} gap before it)` : "";
    }

    hover(event) {
      if (this.clicked && Math.hypot(event.clientX - this.clicked.x, event.clientY - this.clicked.y) < 8) return;
      this.clicked = null;
      const place = this.under(event);
      if (this.asking) this.asking.abort();
      this.over.classList.toggle("on-op", place.inside);
      if (!place.inside) { this.quiet(); return; }
      const found = this.local(place), brief = this.brief(place, found);
      if (!found.state) { this.quiet(); return; }
      const known = found.op !== undefined && this.details.get(found.op);
      this.card.show(this.cardOf(brief, known), event.clientX, event.clientY);
      clearTimeout(this.pause);
      if (!known && found.state !== "idle") this.pause = setTimeout(() => this.explain(place, found, brief, event), 140);
    }

    quiet() { this.card.hide(); clearTimeout(this.pause); if (this.asking) this.asking.abort(); }

    async explain(place, found, brief, event) {
      const mine = (this.asking = new AbortController());
      try {
        const detail = await this.detail(this.queryOf(place, found), mine.signal);
        if (!mine.signal.aborted && !this.card.box.hidden) this.card.show(this.cardOf(brief, detail), event.clientX, event.clientY);
      } catch (error) { /* what is drawn says enough */ }
    }

    queryOf(place, found) { return found.op !== undefined ? { op: found.op } : { row: place.row, at_ns: Math.round(place.at) }; }

    // -----------------------------------------------------------------------------------------------------------------
    // What was chosen

    async choose(query, kept = true) {
      try {
        const detail = await this.detail(query);
        if (this.context.signal.aborted) return;
        this.chosen = detail;
        this.focused = null;
        this.aside();
        this.redraw();
        if (kept) this.remember();
        this.context.live(this.told(detail));
      } catch (error) {
        if (C.stale(error)) return;
        this.context.live(error.status === 404 && taut.source.live ? "Nothing is here." : error.message);
        if (kept) { this.chosen = null; this.aside(error.status === 404 && taut.source.live ? null : error.message, error.command); this.redraw(); this.remember(); }
        else this.aside(error.message, error.command);
      }
    }

    told(detail) {
      const root = detail.root === null ? null : detail.path[detail.root];
      const waits = detail.wait ? ` It waits ${taut.ns(detail.wait.wait_ns)}${detail.last_label ? ` for ${detail.last_label}` : ""}.` : "";
      return `${detail.name} of ${detail.label}, step ${detail.step}: works ${taut.ns(detail.work_ns)}.${waits}${root ? ` Root cause: ${root.name} of ${root.label}${this.extra(root)}.` : ""}`;
    }

    aside(problem, command) {
      const { chosen } = this;
      if (!chosen) {
        const keys = [["wheel, + −", "zoom in time"], ["shift + wheel", "more or fewer ranks"], ["drag, arrows", "move"], ["double click", "fit a step"], ["click, Enter", "who caused this wait"], ["/", "filter ranks"]];
        this.side.replaceChildren(...(problem ? [el("p", { class: "timeline-problem" }, problem), command ? taut.command(command) : ""] : []), problem ? "" : el("p", {}, "Click on a wait: the path back to its root cause is drawn over the ranks, and listed here."),
          el("dl", { class: "timeline-keys" }, keys.map(([key, text]) => [el("dt", {}, key), el("dd", {}, text)])),
          el("p", { class: "muted" }, `${taut.count(this.axis.ops, "op")}, ${taut.count(this.axis.rows.length, "rank")}, ${taut.count(this.axis.steps.length, "step")}, ${taut.ns(this.axis.wall_ns)}.`),
          this.named.size ? el("p", { class: "muted" }, el("span", { class: "named-mark", "aria-hidden": "true" }, "▶ "), "findings name this rank") : "", ...this.elsewhere());
        return;
      }
      const close = this.button("×", "close (Esc)", () => this.forget());
      close.setAttribute("aria-label", "close");
      this.side.replaceChildren(el("div", { class: "side-head" }, el("h2", { title: chosen.name }, C.middle(chosen.name, 64)), close), this.facts(chosen), ...this.pathList(chosen), this.onward(chosen));
    }

    /** Of a file, the commands that show more than it does. */
    elsewhere() {
      if (taut.source.live) return [];
      const run = taut.quoted(this.context.card.folder);
      return [taut.command(`taut export ${run} --to perfetto`, "op by op in Perfetto"), taut.command(`taut serve ${run}`, "every path, in the app")];
    }

    facts(op) {
      const pairs = [["where", `${op.label} · ${op.lane} · step ${op.step}`], ["works", `${taut.ns(op.work_ns)}${op.reference_ns === null ? "" : ` (reference ${taut.ns(op.reference_ns)})`}`]];
      if (op.wait) pairs.push(["waits", el("div", {}, `${taut.ns(op.wait.wait_ns)}${op.last_label ? `; last to come: ${op.last_label}` : ""}`, partsOf(op.wait, this.full, this.codes))]);
      if (op.members !== null) pairs.push(["meets", taut.count(op.members, "rank") + (op.size_bytes === null ? "" : `, ${taut.bytes ? taut.bytes(op.size_bytes) : op.size_bytes + " B"}`)]);
      pairs.push(["slack", op.critical ? "none: on the critical path" : taut.ns(op.slack_ns)]);
      return el("dl", { class: "side-facts" }, pairs.map(([key, text]) => [el("dt", {}, key), el("dd", {}, text)]));
    }

    pathList(detail) {
      if (detail.path.length < 2) return [el("p", { class: "muted" }, "Nothing before it in its step.")];
      const item = (op, k) => el("li", { class: k === detail.root ? "root" : "" },
        op.because !== "asked" && el("span", { class: "because" }, because[op.because]),
        el("button", { type: "button", class: "path-op", title: op.name, on: { click: () => this.focusOn(op) } },
          el("b", {}, op.label), ` ${C.middle(bare(op.name), 44)} `, el("span", { class: "muted" }, taut.ns(op.end_ns - op.opening_ns)), this.extra(op) && el("span", { class: "extra" }, this.extra(op)), k === detail.root && el("span", { class: "root-word" }, "root cause")));
      return [el("h3", {}, detail.wait ? "Why it waited" : "What it hangs on"), el("ol", { class: "side-path" }, detail.path.map(item))];
    }

    onward(detail) {
      const root = detail.root === null ? detail : detail.path[detail.root];
      const link = (view, params, text) => this.context.href ? el("a", { href: this.context.href(view, params) }, text) : el("button", { type: "button", class: "small", on: { click: () => this.context.go(view, params) } }, text);
      return el("p", { class: "side-onward" }, link("whatif", { fix: `rank=${root.rank}` }, `What if rank ${root.rank} were mended?`), " ", link("structure", { rank: root.rank, step: detail.step }, "How far a delay of it travels"));
    }

    /** Shows an op of the path, at a width that shows its neighbours. */
    focusOn(op) {
      this.focused = op;
      const length = Math.max((op.end_ns - op.begin_ns) * 2, SPAN * 4, Math.min(this.view.end - this.view.begin, (op.end_ns - op.begin_ns) * 40));
      const middle = (op.begin_ns + op.end_ns) / 2, view = { ...this.view, begin: middle - length / 2, end: middle + length / 2 };
      if (op.row < view.first || op.row + 1 > view.first + view.rows) view.first = op.row - view.rows / 2;
      this.cursor = { row: op.row, at: middle };
      this.travel(view);
      this.context.live(`${op.name} of ${op.label}${this.extra(op)}`);
    }

    forget() { this.chosen = null; this.focused = null; this.aside(); this.redraw(); this.remember(); this.over.focus({ preventScroll: true }); }

    perfetto() {
      taut.perfetto(this.context).catch((error) => C.stale(error) || taut.say(error.message, true));
    }

    // -----------------------------------------------------------------------------------------------------------------
    // Words instead of a picture

    listed() {
      if (!this.table.open) return;
      clearTimeout(this.listing);
      this.listing = setTimeout(() => this.table.lastElementChild.replaceChildren(this.tableOf()), 120);
    }

    tableOf() {
      const frame = this.serving() || (this.shown && this.shown[this.shown.length - 1]);
      if (!frame) return el("p", {}, "Nothing yet.");
      return frame.drawn ? this.opTable(frame) : this.stateTable(frame);
    }

    opTable(frame) {
      const ops = frame.drawn, rows = [];
      for (let k = 0; k < ops.size; k++) if (ops.end[k] > this.view.begin && ops.begin[k] < this.view.end && ops.row[k] >= Math.floor(this.view.first) && ops.row[k] < this.view.first + this.view.rows) rows.push(k);
      const columns = [
        { key: "rank", label: "rank", value: (k) => this.axis.rows[ops.row[k]].label }, { key: "op", label: "op", value: (k) => frame.names[ops.name[k]] },
        { key: "step", label: "step", number: true, value: (k) => (this.stepAt(ops.begin[k]) || { step: null }).step },
        { key: "begin", label: "begin", number: true, value: (k) => ops.begin[k], text: (k) => taut.ns(ops.begin[k]) },
        { key: "wait", label: "wait", number: true, value: (k) => ops.opening[k] - ops.begin[k], text: (k) => taut.ns(ops.opening[k] - ops.begin[k]) },
        { key: "of", label: "which is", value: (k) => (ops.wait[k] < 0 ? "" : this.states[ops.wait[k]]) },
        { key: "work", label: "work", number: true, value: (k) => ops.end[k] - ops.opening[k], text: (k) => taut.ns(ops.end[k] - ops.opening[k]) },
        { key: "state", label: "state", value: (k) => this.states[ops.state[k]] },
      ];
      return taut.table({ caption: `Ops in ${this.words()}`, columns, rows, sort: "-wait", most: 50, csv: "timeline.csv", pick: (k) => this.choose({ op: ops.op[k] }) });
    }

    stateTable(frame) {
      const lines = [];
      for (let line = 0; line < frame.lines; line++) {
        const row = frame.first_row + Math.floor(line * frame.rows / frame.lines);
        if (row >= Math.floor(this.view.first) && row < this.view.first + this.view.rows) lines.push({ row, share: this.shares(frame, line) });
      }
      const present = this.states.map((state, code) => [state, code]).filter(([, code]) => lines.some((one) => one.share[code] > 0)), shared = frame.lines < frame.rows;
      const columns = [{ key: "rank", label: "rank", value: (one) => this.axis.rows[one.row].label }, ...present.map(([state, code]) => ({ key: state, label: state, number: true, value: (one) => one.share[code], text: (one) => taut.percent(one.share[code]) }))];
      return taut.table({ caption: shared ? `What lines show in ${this.words()}: several ranks each, a loss before what holds more time` : `Shares of the time in ${this.words()}`, columns, rows: lines, most: 32, csv: "timeline.csv" });
    }

    shares(frame, line) {
      const from = between(Math.floor((this.view.begin - frame.begin_ns) / (frame.end_ns - frame.begin_ns) * frame.columns), 0, frame.columns - 1);
      const to = between(Math.ceil((this.view.end - frame.begin_ns) / (frame.end_ns - frame.begin_ns) * frame.columns), from + 1, frame.columns);
      const out = new Float64Array(this.states.length);
      for (let k = from; k < to; k++) { const code = frame.bytes[line * frame.columns + k]; if (code !== 255) out[code] += 1 / (to - from); }
      return out;
    }

    // -----------------------------------------------------------------------------------------------------------------
    // Hands

    listen() {
      this.redraw = C.once(() => this.paint());
      this.remember = C.later(200, () => { if (!this.context.signal.aborted) this.context.set(this.params()); });
      const { over, map } = this;
      over.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
      over.addEventListener("pointerdown", (event) => this.press(event));
      over.addEventListener("pointermove", (event) => this.move(event));
      for (const end of ["pointerup", "pointercancel"]) over.addEventListener(end, (event) => this.release(event));
      over.addEventListener("pointerleave", () => this.quiet());
      over.addEventListener("dblclick", (event) => this.fitStep(this.under(event)));
      over.addEventListener("keydown", (event) => this.key(event));
      for (const name of ["focus", "blur"]) over.addEventListener(name, () => this.paintOver());
      map.addEventListener("pointerdown", (event) => { map.setPointerCapture(event.pointerId); this.jump(event); });
      map.addEventListener("pointermove", (event) => { if (event.buttons) this.jump(event); });
      this.filter.addEventListener("input", C.later(250, () => this.filtered()));
      this.filter.addEventListener("keydown", (event) => { if (event.key === "Enter") this.filtered(); if (event.key === "Escape") { this.filter.value = ""; this.filtered(); this.over.focus(); } });
      this.table.addEventListener("toggle", () => this.listed());
      this.watch = new ResizeObserver(() => { if (this.stage.clientWidth !== this.sizes.width || this.above() !== this.top) { this.place(); this.changed(false); } });
      this.watch.observe(this.stage);
      window.addEventListener("resize", () => { this.place(); this.changed(false); }, { signal: this.context.signal });
      taut.onTheme(() => this.colour(), this.context.signal);
      this.pointers = new Map();
      this.place();
      this.redraw();
    }

    redraw() { /* until there are ears */ }
    remember() { /* until there are ears */ }

    wheel(event) {
      event.preventDefault();
      if (this.stop) this.stop();
      const place = this.under(event), turned = (event.deltaY || event.deltaX) * (event.deltaMode === 1 ? 16 : 1);
      const factor = Math.exp(between(turned, -240, 240) * (event.ctrlKey ? 0.01 : 0.0022));
      if (event.shiftKey) this.zoomRows(factor, place.inside ? this.view.first + (place.y - this.plot.y) / this.plot.height * this.view.rows : null);
      else if (!event.ctrlKey && Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan(event.deltaX, 0);
      else this.zoom(factor, place.inside ? place.at : null);
      this.card.hide();
    }

    pan(dx, dy) {
      const { view } = this, plot = this.plot;
      const time = dx / plot.width * (view.end - view.begin), rows = dy / plot.height * view.rows;
      this.show({ begin: view.begin + time, end: view.end + time, first: view.first + rows, rows: view.rows });
    }

    press(event) {
      if (event.button) return;
      this.pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
      this.over.setPointerCapture(event.pointerId);
      this.dragged = false;
      this.from = { x: event.clientX, y: event.clientY };
    }

    move(event) {
      const before = this.pointers.get(event.pointerId);
      if (!before) { this.hover(event); return; }
      if (this.pointers.size === 2) { this.pinch(event, before); return; }
      if (!this.dragged && Math.hypot(event.clientX - this.from.x, event.clientY - this.from.y) < 4) return;
      this.dragged = true;
      this.card.hide();
      this.over.classList.add("dragging");
      this.pan(before.x - event.clientX, before.y - event.clientY);
      this.pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    }

    pinch(event, before) {
      const other = [...this.pointers].find(([id]) => id !== event.pointerId)[1], now = { x: event.clientX, y: event.clientY };
      const apart = (a, b) => Math.max(20, Math.hypot(a.x - b.x, a.y - b.y));
      this.dragged = true;
      this.pointers.set(event.pointerId, now);
      this.zoom(apart(before, other) / apart(now, other), this.under({ clientX: (now.x + other.x) / 2, clientY: now.y }).at);
    }

    release(event) {
      const had = this.pointers.delete(event.pointerId);
      this.over.classList.remove("dragging");
      if (!had || this.dragged || event.type === "pointercancel") return;
      const place = this.under(event);
      if (!place.inside) return;
      this.cursor = { row: place.row, at: place.at };
      this.clicked = { x: event.clientX, y: event.clientY };
      this.quiet();
      this.pick(place);
    }

    /** Selects what is there; where nothing is, what was chosen is let go. */
    pick(place) {
      const found = this.local(place);
      if (found.op === undefined && (found.state === null || found.state === "idle") && this.serving()) { if (this.chosen) this.forget(); this.context.live("Nothing is here."); return; }
      this.choose(this.queryOf(place, found));
    }

    fitStep(place) {
      const step = this.stepAt(place.at);
      if (!step) return;
      const [begin, end] = this.around(step), { view } = this;
      const fitted = Math.abs(view.begin - Math.max(0, begin)) + Math.abs(view.end - Math.min(this.whole.end, end)) < (end - begin) * 0.01;
      this.travel(fitted ? { ...view, begin: 0, end: this.whole.end } : { ...view, begin, end });
    }

    jump(event) {
      const box = this.map.getBoundingClientRect(), left = this.gutter, wide = box.width - left - 2;
      const at = between((event.clientX - box.left - left) / wide, 0, 1) * this.whole.end, row = between((event.clientY - box.top - 3) / (MAP - 6), 0, 1) * this.whole.rows;
      const length = this.view.end - this.view.begin;
      this.show({ ...this.view, begin: at - length / 2, end: at + length / 2, first: row - this.view.rows / 2 });
    }

    filtered() {
      this.kept = named(this.filter.value, this.axis.rows);
      if (this.kept && !this.kept.length) { this.tell("no such rank"); this.context.live("No such rank."); this.kept = null; this.changed(true); return; }
      this.tell("");
      const span = this.kept ? this.span(this.kept) : { first: 0, rows: this.whole.rows };
      this.context.live(this.kept ? `${taut.count(this.kept.length, "rank")} shown.` : "All ranks are shown.");
      this.travel({ ...this.view, ...span });
    }

    key(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const { view } = this, length = view.end - view.begin;
      const act = {
        ArrowLeft: () => (event.shiftKey ? this.pan(-0.1 * this.plot.width, 0) : this.step(0, -length / 40)), ArrowRight: () => (event.shiftKey ? this.pan(0.1 * this.plot.width, 0) : this.step(0, length / 40)),
        ArrowUp: () => (event.shiftKey ? this.zoomRows(0.5) : this.step(-1, 0)), ArrowDown: () => (event.shiftKey ? this.zoomRows(2) : this.step(1, 0)),
        PageUp: () => this.step(-Math.max(1, Math.round(view.rows / 2)), 0), PageDown: () => this.step(Math.max(1, Math.round(view.rows / 2)), 0),
        "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), "_": () => this.zoom(2),
        Home: () => (view.begin > 0 ? this.ends(0) : this.travel(this.whole)), End: () => this.ends(this.whole.end),
        Enter: () => this.pick(this.at()), Escape: () => this.forget(), f: () => this.fitStep(this.at()),
      }[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    }

    /** Where the cursor is; in the middle at first. */
    at() {
      const { view } = this;
      if (!this.cursor || this.cursor.at < view.begin || this.cursor.at > view.end) this.cursor = { row: this.cursor ? this.cursor.row : Math.floor(view.first + view.rows / 2), at: (view.begin + view.end) / 2 };
      if (this.cursor.row < Math.floor(view.first) || this.cursor.row >= view.first + view.rows) this.cursor.row = between(Math.floor(view.first + view.rows / 2), 0, this.whole.rows - 1);
      return { row: this.cursor.row, at: this.cursor.at, lane: null, inside: true };
    }

    /** Moves the cursor; the view follows where it would leave it. */
    step(rows, time) {
      const { row, at } = this.at(), view = { ...this.view }, length = view.end - view.begin;
      this.cursor = { row: between(row + rows, 0, this.whole.rows - 1), at: between(at + time, 0, this.whole.end) };
      if (this.cursor.at < view.begin || this.cursor.at > view.end) { view.begin += time * 8; view.end = view.begin + length; }
      if (this.cursor.row < view.first) view.first = this.cursor.row;
      if (this.cursor.row + 1 > view.first + view.rows) view.first = this.cursor.row + 1 - view.rows;
      this.show(view);
      this.say();
    }

    say() {
      clearTimeout(this.saying);
      this.saying = setTimeout(() => {
        const place = this.at(), brief = this.brief(place, this.local(place));
        this.context.live([brief.title, ...brief.lines].join(", "));
      }, 150);
    }

    ends(at) {
      const length = this.view.end - this.view.begin;
      this.cursor = { row: this.at().row, at };
      this.show(at === 0 ? { ...this.view, begin: 0, end: length } : { ...this.view, begin: at - length, end: at });
      this.say();
    }
  }

  taut.view({
    name: "timeline",
    title: "Timeline",
    needs: "It is drawn from the operator graph of a traced run: `taut analyze` on traces of its ranks.",
    draw,
  });
})();
