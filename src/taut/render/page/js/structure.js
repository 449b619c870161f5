/* The same job, two answers: its parts as a dashboard shows them, and its operator graph with a delay on its way over it. */
(() => {
  "use strict";

  const taut = window.taut;
  const { el, svg } = taut;
  const C = taut.canvas;

  const KIND = { compute: "compute", communicate: "communication", synchronise: "communication", coordinate: "host" };
  const GRAPH = 212; // height of the picture of the graph
  const LEFT = 128; // words of the rows of a wave
  const TOP = 40; // steps and what is left, above a wave
  const TRAVEL = 1500; // a delay on its way, ms

  const between = (x, least, most) => Math.max(least, Math.min(most, x));
  const number = (text) => (text === undefined || text === null || text === "" || !Number.isFinite(Number(text)) ? null : Number(text));
  const family = (name) => name.replace(/[0-9]+/g, "#");

  // -------------------------------------------------------------------------------------------------------------------
  // Parts

  const told = (part) => {
    const metrics = part.metrics.map((one) => `${one.metric} ${taut.three ? taut.three(one.value) : one.value}${one.limit === null ? "" : ` (limit ${one.limit_is || ""} ${one.limit})`}`);
    return [`${part.label}: busy ${taut.percent(part.busy_share)}, of its time ${taut.percent(part.productive_share)} useful`, ...metrics].join("; ");
  };

  const partRow = (part, pick) => {
    const fill = el("span", { class: "part-fill" });
    fill.style.width = `${100 * between(part.busy_share || 0, 0, 1)}%`;
    const sign = part.inside === null ? el("span", { class: "part-sign muted", title: "no metric was recorded" }, "–") : el("span", { class: "part-sign " + (part.inside ? "good" : "bad"), title: part.inside ? "all its metrics are inside their limits" : "a metric is outside its limit" }, part.inside ? "✓" : "✗");
    return el("li", {}, el("button", { type: "button", class: "component", title: told(part), on: { click: () => pick(part) } },
      el("span", { class: "part-name" }, part.label), el("span", { class: "part-bar", "aria-hidden": "true" }, fill), el("span", { class: "number" }, taut.percent(part.busy_share, 0)), sign));
  };

  const partsCard = (data, pick) => {
    const known = data.parts.filter((part) => part.inside !== null), good = known.filter((part) => part.inside).length;
    const words = known.length ? `${good} of ${known.length} inside all their limits` : "no metrics were recorded; what is busy looks well";
    return el("section", { class: "card structure-parts" }, el("h2", {}, "Part by part, as a dashboard shows it"),
      el("p", { class: "note" }, `Busy: under any op. ${words}.`),
      el("ul", { class: "parts" }, data.parts.map((part) => partRow(part, pick))));
  };

  // -------------------------------------------------------------------------------------------------------------------
  // Operator graph

  /** Where nodes stand: from left to right as a step goes, marks as large as the rank time that they take. */
  const placed = (nodes, width) => {
    const most = Math.max(...nodes.map((node) => node.rank_share + node.wait_share), 1e-9);
    const apart = (width - 40) / nodes.length, area = Math.PI * Math.min(32, apart * 0.42) ** 2 / most;
    const order = nodes.map((_, k) => k).sort((a, b) => nodes[a].place - nodes[b].place), out = [];
    order.forEach((k, at) => {
      const node = nodes[k], tall = 92, wide = (share) => area * share / tall;
      out[k] = { node, at, x: 20 + apart * (at + 0.5), y: GRAPH / 2, apart, tall, work: Math.max(3, wide(node.rank_share)), wait: node.wait_share > 0 ? Math.max(2, wide(node.wait_share)) : 0, r: Math.max(5, Math.sqrt(area * node.rank_share / Math.PI)), R: Math.max(5, Math.sqrt(area * (node.rank_share + node.wait_share) / Math.PI)) };
    });
    return out;
  };

  const edgeLine = (edge, places) => {
    const a = places[edge.first], b = places[edge.then], far = b.at - a.at, critical = edge.critical_share || 0;
    const bend = far === 1 ? 0 : far > 0 ? -38 - 8 * Math.min(far, 4) : 34 + 8 * Math.min(-far, 4);
    const from = [a.x, a.y], to = [b.x, b.y], mid = [(a.x + b.x) / 2, a.y + 2 * bend];
    const head = svg("path", { d: "M-5,-4L5,0L-5,4Z", transform: `translate(${mid[0]},${a.y + bend}) scale(${critical >= 0.5 ? 1.7 : 1})${far < 0 ? " rotate(180)" : ""}`, class: "edge-head" });
    const line = svg("path", { d: `M${from}Q${mid} ${to}`, class: "edge-line", "stroke-width": (1 + 4 * critical).toFixed(2), "stroke-dasharray": far < 0 ? "5 4" : null });
    return svg("g", { class: critical >= 0.5 ? "edge critical" : "edge" }, line, head, svg("title", {}, `${a.node.name} → ${b.node.name}: ${taut.count(edge.count, "time")}; the critical path takes it in ${taut.percent(critical, 0)} of the steps`));
  };

  const marks = (p) => {
    const { node } = p, kind = "kind-" + KIND[node.kind];
    if (!node.gate) return [p.wait ? svg("circle", { cx: p.x, cy: p.y, r: p.R, class: "waiting" }) : null, svg("circle", { cx: p.x, cy: p.y, r: p.r, class: "mark " + kind })];
    const left = p.x - (p.work + p.wait) / 2, top = p.y - p.tall / 2;
    return [p.wait ? svg("rect", { x: left, y: top, width: p.wait, height: p.tall, class: "waiting" }) : null, svg("rect", { x: left + p.wait, y: top, width: p.work, height: p.tall, class: "mark " + kind })];
  };

  const nodeMark = (p, width, pick) => {
    const { node } = p, above = p.at % 2 === 1, shortened = C.middle(taut.safe(node.name), Math.floor(p.apart * 1.7 / 6.4));
    const y = above ? 14 : GRAPH - 20, shares = `${taut.percent(node.rank_share)}${node.wait_share > 0 ? ` + ${taut.percent(node.wait_share)} waiting` : ""}`;
    const half = 3.4 * Math.max(shortened.length, shares.length), anchor = p.x < half + 6 ? "start" : p.x > width - half - 6 ? "end" : "middle", x = { start: 6, end: width - 6, middle: p.x }[anchor];
    const words = `${node.name}: ${node.gate ? "gate, " : ""}${taut.count(node.ops, "op")}, ${taut.percent(node.rank_share)} of rank time, ${taut.percent(node.wait_share)} waiting, ${taut.percent(node.critical_share)} of the wall on the critical path`;
    const act = (event) => { if (event.type === "click" || event.key === "Enter" || event.key === " ") { event.preventDefault(); pick(node); } };
    return svg("g", { class: "node", tabindex: "0", role: "button", on: { click: act, keydown: act } },
      svg("title", {}, `${words}. Click: the delay is put there.`), svg("line", { x1: p.x, x2: p.x, y1: p.y, y2: above ? 34 : GRAPH - 36, class: "lead" }), marks(p),
      svg("text", { x, y, "text-anchor": anchor, class: "node-name" }, shortened), svg("text", { x, y: y + 13, "text-anchor": anchor, class: "node-share" }, shares));
  };

  const hatch = () => svg("defs", {}, svg("pattern", { id: "waiting", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    svg("rect", { width: 6, height: 6, class: "hatch-ground" }), svg("rect", { width: 2.4, height: 6, class: "hatch-line" })));

  const graphPicture = (view, width, pick) => {
    const places = placed(view.nodes, width);
    const edges = [...view.edges].sort((a, b) => (a.critical_share || 0) - (b.critical_share || 0));
    return svg("svg", { width, height: GRAPH, viewBox: `0 0 ${width} ${GRAPH}`, class: "graph", role: "group", "aria-label": "operator graph of a step; nodes are classes of ops" },
      hatch(), edges.map((edge) => edgeLine(edge, places)), [...places].sort((a, b) => a.at - b.at).map((place) => nodeMark(place, width, pick)));
  };

  const graphKey = () => el("p", { class: "note graph-key" },
    el("span", { class: "key" }, el("i", { class: "swatch fill-compute", "aria-hidden": "true" }), "computes"), el("span", { class: "key" }, el("i", { class: "swatch kind-bar", "aria-hidden": "true" }), "gate: ranks meet"),
    el("span", { class: "key" }, el("i", { class: "swatch hatch", "aria-hidden": "true" }), "waiting"), el("span", { class: "key" }, el("i", { class: "swatch bold", "aria-hidden": "true" }), "critical path"), el("span", { class: "key" }, "– – next step"));

  const nodeTable = (view) => taut.table({
    caption: "Classes of ops, in the order of a step", rows: [...view.nodes].sort((a, b) => a.place - b.place), csv: "operators.csv",
    columns: [
      { key: "name", label: "class", value: (n) => n.name }, { key: "kind", label: "kind", value: (n) => (n.gate ? `${n.kind}, gate` : n.kind) }, { key: "ops", label: "ops", number: true, value: (n) => n.ops },
      { key: "rank_share", label: "of rank time", number: true, value: (n) => n.rank_share, text: (n) => taut.percent(n.rank_share) }, { key: "wait_share", label: "waiting", number: true, value: (n) => n.wait_share, text: (n) => taut.percent(n.wait_share) },
      { key: "critical_share", label: "of the wall, critical", number: true, value: (n) => n.critical_share, text: (n) => taut.percent(n.critical_share) },
    ],
  });

  // -------------------------------------------------------------------------------------------------------------------
  // A delay on its way

  const NO_GATES = ["No gate follows: no other rank waits for this one after the delay.", "The delay stays on its rank, and there is no way over gates to draw."];

  /** Gates at which a row of a wave lost some of the delay: to slack. */
  const losses = (wave) => wave.late_ns.map((row) => {
    let before = null;
    return row.map((late) => {
      const lost = late !== null && before !== null && before - late > 0.01 * wave.delay_ns ? before - late : 0;
      if (late !== null) before = late;
      return lost;
    });
  });

  class Wave {
    constructor(signal, pick) {
      this.canvas = el("canvas", { class: "wave", tabindex: "0", role: "application", "aria-roledescription": "map", "aria-label": "the delay gate by gate" });
      this.element = el("div", { class: "wave-box" }, this.canvas);
      this.card = C.card(document.body);
      this.at = null;
      this.share = 1;
      this.pick = pick;
      const draw = C.once(() => this.draw());
      const watch = new ResizeObserver(draw);
      watch.observe(this.element);
      taut.onTheme(draw, signal);
      signal.addEventListener("abort", () => { watch.disconnect(); this.card.box.remove(); if (this.stop) this.stop(); });
      this.canvas.addEventListener("mousemove", (event) => this.hover(event));
      this.canvas.addEventListener("mouseleave", () => this.card.hide());
      this.canvas.addEventListener("keydown", (event) => this.key(event));
      this.canvas.addEventListener("blur", () => { this.at = null; this.card.hide(); draw(); });
      this.canvas.addEventListener("click", (event) => { const found = this.under(event); if (found) this.pick(found[0]); });
    }

    /** Shows a wave; it travels unless people want no motion. */
    show(wave, travel) {
      Object.assign(this, { wave, lost: losses(wave), at: null });
      this.canvas.setAttribute("aria-label", taut.safe(`How much later ${taut.count(wave.labels.length, "row")} of ranks leave ${taut.count(wave.gates.length, "gate")}, in their order: ${taut.ns(wave.delay_ns)} at first, ${taut.ns(wave.left_ns[wave.left_ns.length - 1] || 0)} after the last. Arrow keys move.`));
      if (this.stop) this.stop();
      this.stop = C.motion(travel ? TRAVEL : 0, (share) => { this.share = share; this.draw(); });
    }

    clear() {
      if (this.stop) this.stop();
      this.wave = null;
      const p = { width: this.element.clientWidth, height: this.element.clientHeight }, { pen } = C.fit(this.canvas, p.width, p.height);
      pen.fillStyle = taut.colour("raised");
      pen.fillRect(0, 0, p.width, p.height);
    }

    place() {
      const width = Math.max(200, this.element.clientWidth), height = Math.max(120, this.element.clientHeight), { wave } = this;
      return { width, height, w: (width - LEFT - 4) / Math.max(1, wave.gates.length), h: (height - TOP - 2) / Math.max(1, wave.labels.length) };
    }

    draw() {
      if (!this.wave || !this.element.isConnected || this.element.clientWidth < 40) return;
      const began = performance.now(), p = this.place(), { pen } = C.fit(this.canvas, p.width, p.height);
      const colours = C.palette(), shown = Math.ceil(this.share * this.wave.gates.length);
      pen.fillStyle = taut.colour("raised");
      pen.fillRect(0, 0, p.width, p.height);
      if (!this.wave.gates.length) { this.none(pen, p, colours); return; }
      this.cells(pen, p, shown, colours);
      this.head(pen, p, shown, colours);
      this.words(pen, p, colours);
      if (this.at) { pen.strokeStyle = colours.accent; pen.lineWidth = 2; pen.strokeRect(LEFT + this.at[1] * p.w - 1, TOP + this.at[0] * p.h - 1, Math.max(4, p.w) + 2, Math.max(4, p.h) + 2); }
      C.times.push(performance.now() - began);
      if (C.times.length > 240) C.times.shift();
    }

    none(pen, p, colours) {
      pen.font = "13px " + getComputedStyle(document.body).fontFamily;
      pen.fillStyle = colours.muted;
      pen.textBaseline = "middle";
      NO_GATES.forEach((line, k) => pen.fillText(line, 2, 20 + 20 * k));
    }

    cells(pen, p, shown, colours) {
      const { wave } = this, late = C.rgb(colours.slow), paper = C.rgb(colours.paper), away = taut.colour("ground"), fine = C.rgb(taut.colour("compute"));
      const gap = p.w >= 5 ? 1 : 0, line = p.h >= 5 ? 1 : 0;
      const shades = Array.from({ length: 33 }, (_, k) => `rgb(${(k ? C.mixed(late, paper, 0.16 + 0.84 * k / 32) : C.mixed(fine, paper, 0.26)).join(",")})`);
      wave.late_ns.forEach((row, r) => row.forEach((value, g) => {
        const x = LEFT + g * p.w, y = TOP + r * p.h;
        if (value === null && g < shown) return;
        pen.fillStyle = g >= shown ? away : shades[value > 0 ? between(Math.round(32 * value / Math.max(1, wave.delay_ns)), 1, 32) : 0];
        pen.fillRect(x, y, Math.max(0.5, p.w - gap), Math.max(0.5, p.h - line));
        if (g < shown && this.lost[r][g]) { pen.fillStyle = colours.ink; pen.fillRect(x, y, between(p.w * 0.3, 1.5, 3), Math.max(1, p.h - line)); }
      }));
      if (shown < wave.gates.length) this.playing(pen, LEFT + shown * p.w, p, colours);
    }

    /** How far the film has come: a line with a handle above all rows, which nothing else in the picture has. */
    playing(pen, x, p, colours) {
      pen.strokeStyle = pen.fillStyle = colours.accent;
      pen.lineWidth = 1;
      pen.setLineDash([3, 3]);
      pen.strokeRect(x, TOP - 4, 0.01, p.height - TOP + 4);
      pen.setLineDash([]);
      pen.beginPath();
      pen.arc(x, TOP - 4, 4, 0, 2 * Math.PI);
      pen.fill();
    }

    /** Steps, and what is left of the delay after each gate. */
    head(pen, p, shown, colours) {
      const { wave } = this, font = getComputedStyle(document.body).fontFamily, high = 20;
      pen.font = "11px " + font;
      pen.textBaseline = "middle";
      pen.fillStyle = colours.slow;
      wave.left_ns.forEach((left, g) => { if (g < shown) { const tall = high * between(left / Math.max(1, wave.delay_ns), 0, 1); pen.fillRect(LEFT + g * p.w, TOP - 4 - tall, Math.max(1, p.w - (p.w >= 5 ? 1 : 0)), tall); } });
      pen.fillStyle = colours.muted;
      pen.textAlign = "left";
      pen.fillText("delay that is left", 2, TOP - 4 - high / 2);
      let free = LEFT;
      wave.gate_steps.forEach((step, g) => {
        if (g && step === wave.gate_steps[g - 1]) return;
        const x = LEFT + g * p.w, text = free === LEFT ? `step ${step}` : String(step);
        const fits = x >= free && x + C.textWidth(pen, text) <= p.width - 4;
        pen.fillRect(x - (g ? 1 : 0), fits ? 2 : 14, 1, TOP - (fits ? 6 : 18));
        if (!fits) return;
        pen.fillText(text, x + 3, 7);
        free = x + C.textWidth(pen, text) + 12;
      });
    }

    words(pen, p, colours) {
      pen.font = "11px " + getComputedStyle(document.body).fontFamily;
      pen.fillStyle = colours.ink;
      const every = Math.max(1, Math.ceil(13 / p.h));
      this.wave.labels.forEach((label, r) => { if (r % every === 0) pen.fillText(C.short(pen, taut.safe(label), LEFT - 8), 2, TOP + (r + 0.5) * p.h); });
    }

    under(event) {
      if (!this.wave) return null;
      const box = this.canvas.getBoundingClientRect(), p = this.place();
      const g = Math.floor((event.clientX - box.left - LEFT) / p.w), r = Math.floor((event.clientY - box.top - TOP) / p.h);
      return g >= 0 && r >= 0 && g < this.wave.gates.length && r < this.wave.labels.length ? [r, g] : null;
    }

    said(r, g) {
      const { wave } = this, late = wave.late_ns[r][g], lost = this.lost[r][g];
      const out = [`${wave.labels[r]} at ${wave.gate_names[g]}, step ${wave.gate_steps[g]}`, late === null ? "is not at this gate" : late > 0 ? `leaves ${taut.ns(late)} later` : "leaves on time"];
      if (lost) out.push(`${taut.ns(lost)} of the delay is gone here: it would have waited anyway`);
      return out;
    }

    hover(event) {
      const found = this.under(event);
      if (!found) { this.card.hide(); return; }
      const [first, ...others] = this.said(...found);
      this.card.show([el("strong", {}, C.middle(first, 110)), ...others.map((line) => el("div", {}, line))], event.clientX, event.clientY);
    }

    key(event) {
      const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], Home: [0, -9999], End: [0, 9999] }[event.key];
      if (!this.wave || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "Enter" && this.at) { event.preventDefault(); this.pick(this.at[0]); return; }
      if (!move || !this.wave.gates.length) return;
      event.preventDefault();
      const [r, g] = this.at || [0, 0], next = this.at ? move : [0, 0];
      this.at = [between(r + next[0], 0, this.wave.labels.length - 1), between(g + next[1], 0, this.wave.gates.length - 1)];
      this.draw();
      taut.say(this.said(...this.at).join(", "));
    }
  }

  const waveTable = (wave) => {
    const rows = wave.gates.map((_, g) => g);
    const at = (g) => wave.late_ns.filter((row) => row[g] !== null), late = (g) => wave.late_ns.filter((row) => row[g] > 0).length;
    return taut.table({
      caption: "The delay gate by gate", rows, most: 40, csv: "delay.csv",
      columns: [
        { key: "n", label: "gate", number: true, value: (g) => wave.gates[g] }, { key: "name", label: "name", value: (g) => wave.gate_names[g] }, { key: "step", label: "step", number: true, value: (g) => wave.gate_steps[g] },
        { key: "rows", label: "rows that are late", number: true, value: late, text: (g) => `${late(g)} of ${at(g).length}` }, { key: "left", label: "delay that is left", number: true, value: (g) => wave.left_ns[g], text: (g) => taut.ns(wave.left_ns[g]) },
      ],
    });
  };

  // -------------------------------------------------------------------------------------------------------------------
  // The page

  class Structure {
    constructor(root, context, data) {
      Object.assign(this, { root, context, data });
      this.rankOf = data.ranks.map((label, k) => { const found = /^rank (\d+)\b/.exec(label); return found ? Number(found[1]) : k; });
      this.wave = new Wave(context.signal, (row) => this.pickRow(row));
    }

    begin() {
      this.build();
      this.take(this.context.params);
      this.context.signal.addEventListener("abort", () => { if (this.asked) this.asked.abort(); });
      return (params) => this.take(params);
    }

    build() {
      const { data } = this;
      this.picture = el("div", { class: "graph-box" });
      const graph = el("section", { class: "card structure-graph" }, el("div", { class: "structure-head" }, el("h2", {}, "As one system: who waits for whom in a step"), graphKey()), this.picture);
      this.root.append(
        el("h1", { class: "unseen" }, "Structure"),
        el("div", { class: "structure-top" }, partsCard(data, (part) => this.put({ rank: part.ranks[0], op: null })), graph),
        el("div", { class: "structure-low" }, this.delayCard(), this.matrix()),
        el("div", { class: "structure-folds" }, taut.fold("Operator graph as a table", nodeTable(data.view)), (this.tableFold = taut.fold("The delay as a table", el("div", {})))));
      this.tableFold.addEventListener("toggle", () => this.listed());
      this.drawGraph();
      const watch = new ResizeObserver(() => this.drawGraph());
      watch.observe(this.picture);
      this.context.signal.addEventListener("abort", () => watch.disconnect());
    }

    drawGraph() {
      const width = Math.round(this.picture.clientWidth);
      if (!width || width === this.drawnWidth) return;
      this.drawnWidth = width;
      this.picture.replaceChildren(graphPicture(this.data.view, width, (node) => this.pickNode(node)));
    }

    delayCard() {
      const choice = (list, name, words) => el("select", { "aria-label": name, class: "small" }, list.map(([value, text]) => el("option", { value }, words(text))));
      this.rank = choice(this.data.ranks.map((label, k) => [this.rankOf[k], label]), "rank that is delayed", (text) => C.middle(text, 34));
      this.step = choice(this.data.steps.map((step) => [step, step]), "step in which it is delayed", (text) => String(text));
      this.slider = el("input", { type: "range", min: "-100", max: "400", step: "5", "aria-label": "delay, milliseconds, by powers of ten" });
      this.ms = el("input", { type: "number", class: "small", min: "0.001", step: "any", "aria-label": "delay, milliseconds" });
      this.headline = el("p", { class: "delay-number", role: "status" });
      this.where = el("p", { class: "note" });
      this.command = el("div", { class: "delay-command" });
      this.held = el("select", { class: "small", "aria-label": "delays that this file holds" });
      this.held.addEventListener("change", () => { const { rank, step, ms } = this.data.delays[Number(this.held.value)]; this.step.value = String(step); this.ms.value = String(ms); this.put({ rank, op: null }); });
      this.absorbed = el("ul", { class: "absorbed" });
      for (const one of [this.rank, this.step]) one.addEventListener("change", () => this.put({ op: null }));
      this.ms.addEventListener("change", () => this.put({}));
      this.slider.addEventListener("input", () => { this.ms.value = String(+(10 ** (Number(this.slider.value) / 100)).toPrecision(2)); this.put({}, false); });
      const again = taut.button("play again", () => this.answer && this.wave.show(this.answer, true), { class: "small" });
      return el("section", { class: "card structure-delay" }, el("div", { class: "structure-head" }, el("h2", {}, "A delay on its way over the gates"), this.waveKey()),
        el("div", { class: "delay-controls" }, el("label", {}, "rank ", this.rank), el("label", {}, "step ", this.step), el("label", { class: "delay-ms" }, "delay ", taut.source.live && this.slider, this.ms, " ms"), again, this.data.delays && el("label", {}, "in this file ", this.held)),
        el("div", { class: "delay-words" }, this.headline, this.where), el("div", { class: "delay-body" }, this.wave.element, (this.slack = el("div", { class: "delay-side" }, el("h3", {}, "Where slack took it in"), this.absorbed))), this.command);
    }

    waveKey() {
      return el("p", { class: "note graph-key" }, el("span", { class: "key" }, el("i", { class: "swatch late", "aria-hidden": "true" }), "leaves the gate late"), el("span", { class: "key" }, el("i", { class: "swatch on-time", "aria-hidden": "true" }), "on time"),
        el("span", { class: "key" }, el("i", { class: "swatch not-there", "aria-hidden": "true" }), "not at this gate"), el("span", { class: "key" }, el("i", { class: "swatch lost", "aria-hidden": "true" }), "slack took some of it in here"));
    }

    matrix() {
      const { waits } = this.data, card = el("section", { class: "card structure-matrix" }, el("h2", {}, "Who waits because of whom"));
      if (!waits) { taut.add(card, el("p", { class: "note" }, this.data.stopped.length ? `Rank${this.data.stopped.length > 1 ? "s" : ""} ${this.data.stopped.join(", ")} stopped: the others wait without an end, at gates that never opened.` : "Nobody waited because of one rank alone.")); return card; }
      const share = new Map(waits.share.map((one, k) => [`${waits.cause[k]}:${waits.victim[k]}`, one]));
      const value = (r, c) => share.get(`${r}:${c}`) || 0;
      const rows = waits.share.map((one, k) => ({ cause: waits.labels[waits.cause[k]], victim: waits.labels[waits.victim[k]], share: one }));
      const heat = taut.heat({
        rows: waits.labels, columns: waits.labels.map((label) => label.replace(/^ranks? /, "").replace(/( \(|–).*$/, "")), value, signal: this.context.signal, left: 96, colour: "fault", axis: "rank that waits",
        words: (r, c) => [`${waits.labels[c]} waits because of ${waits.labels[r]}`, `${taut.percent(value(r, c))} of all waiting that has a cause`],
        pick: (r) => { const rank = this.rankNamed(waits.labels[r]); if (rank !== null) this.put({ rank, op: null }); },
        alt: "Rows: ranks that cause waiting; columns: ranks that wait. Arrow keys move, Enter delays the rank of the row.",
      });
      return taut.add(card, el("p", { class: "note" }, `Rows cause, columns wait.${waits.first_steps === null || waits.first_steps === undefined ? "" : ` Measured on the first ${taut.count(waits.first_steps, "step")}.`}`), heat,
        taut.fold("as a table", taut.table({ caption: "Who waits because of whom", rows, sort: "-share", most: 20, csv: "waits.csv", columns: [{ key: "cause", label: "cause" }, { key: "victim", label: "waits" }, { key: "share", label: "of waiting with a cause", number: true, value: (one) => one.share, text: (one) => taut.percent(one.share) }] })));
    }

    /** The first rank that a label of a row names; null where it names none. */
    rankNamed(label) {
      const found = /^ranks? (\d+)/.exec(label), at = this.data.ranks.indexOf(label);
      if (at >= 0) return this.rankOf[at];
      if (found) return Number(found[1]);
      const inside = this.data.ranks.findIndex((one) => one.includes(label));
      return inside >= 0 ? this.rankOf[inside] : null;
    }

    pickRow(row) {
      const rank = this.rankNamed(this.answer.labels[row]);
      if (rank !== null) this.put({ rank, op: null });
    }

    // -----------------------------------------------------------------------------------------------------------------
    // Asking

    usual() {
      const held = (this.data.delays || [])[0];
      if (held) return held.ms;
      const step = this.context.card && this.context.card.step_ns ? this.context.card.step_ns / 1e6 : 30;
      return +between(step / 3, 0.1, 10000).toPrecision(1);
    }

    take(params) {
      const rank = number(params.rank), step = number(params.step), ms = number(params.ms);
      this.op = number(params.op);
      taut.unknown(params, { rank: this.rankOf.includes(rank), step: this.data.steps.includes(step) });
      this.rank.value = String(rank !== null && this.rankOf.includes(rank) ? rank : this.data.delayed_rank);
      this.step.value = String(step !== null && this.data.steps.includes(step) ? step : this.data.delayed_step);
      this.ms.value = String(ms !== null && ms > 0 ? ms : this.usual());
      this.ask(true);
    }

    /** Changes what is asked. */
    put(given, travel = true) {
      if (given.rank !== undefined) this.rank.value = String(given.rank);
      if (given.op !== undefined) this.op = given.op;
      const { rank, step, ms } = this.wanted();
      this.context.set({ rank, step, ms, op: this.op });
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.ask(travel), travel ? 0 : 120);
    }

    wanted() {
      const ms = number(this.ms.value);
      return { rank: Number(this.rank.value), step: Number(this.step.value), ms: ms !== null && ms > 0 ? ms : this.usual() };
    }

    async ask(travel) {
      const asked = this.wanted();
      this.slider.value = String(Math.round(100 * Math.log10(asked.ms)));
      if (this.asked) this.asked.abort();
      const mine = (this.asked = new AbortController());
      try {
        const wave = await taut.source.get(this.context.run, "delay", { ...asked, op: this.op }, mine.signal);
        if (!mine.signal.aborted && !this.context.signal.aborted) this.show(wave, asked, travel);
      } catch (error) {
        if (C.stale(error) || mine.signal.aborted) return;
        this.without(error);
      }
    }

    /** Nothing is shown but why, and the command that tells. */
    without(error) {
      this.answer = null;
      this.headline.textContent = taut.safe(error.message);
      this.where.textContent = error.command ? "This command does:" : "";
      this.command.replaceChildren(error.command ? taut.command(error.command) : "");
      this.slack.hidden = true;
      this.wave.clear();
      this.holding();
      this.context.live(this.headline.textContent);
    }

    /** Of the delays that a file holds, the one that is shown. */
    holding() {
      const held = this.data.delays, { rank, step, ms } = this.wanted();
      if (!held) return;
      const at = held.findIndex((one) => one.rank === rank && one.step === step && one.ms === ms && (this.op === null || this.answer !== null));
      this.held.replaceChildren(...(at < 0 ? [el("option", { value: "-1", selected: true }, "none of these")] : []), ...held.map((one, k) => el("option", { value: k, selected: k === at }, `rank ${one.rank}, step ${one.step}, ${taut.ns(one.ms * 1e6)}`)));
    }

    show(wave, asked, travel) {
      this.answer = wave;
      this.slack.hidden = false;
      this.op = this.op === null ? null : wave.op;
      const cost = 0 - wave.saved_wall_ns, share = wave.delay_ns ? cost / wave.delay_ns : 0;
      this.headline.replaceChildren();
      taut.add(this.headline, el("strong", { "data-ns": cost }, cost > 0 ? taut.signed(cost, taut.ns) : "nothing"), ` ${cost > 0 ? "of wall time" : "is lost of wall time"}: ${taut.percent(share, 0)} of the ${taut.ns(wave.delay_ns)} that rank ${wave.rank} is late in step ${wave.step}`);
      this.where.textContent = taut.safe(`Delayed: ${C.middle(wave.name, 70)}. It reaches ${taut.count(wave.reached_ranks)} of ${taut.count(this.data.ranks.length, "rank")} and ${taut.count(wave.gates.length, "gate")}${wave.gates.length >= 200 ? " or more" : ""}.`);
      this.command.replaceChildren(taut.command(wave.command));
      this.absorbed.replaceChildren(...(wave.absorbed.length ? wave.absorbed.map((one) => el("li", {}, el("b", {}, taut.ns(one.ns)), ` ${one.label}`, one.name && el("span", { class: "muted" }, ` ${C.middle(one.name, 48)}`))) : [el("li", { class: "muted" }, "Nowhere: all of it arrives.")]));
      this.wave.show(wave, travel);
      this.holding();
      this.listed();
      this.context.live(this.headline.textContent + (wave.gates.length ? "" : ` ${NO_GATES[0]}`));
    }

    listed() { if (this.tableFold.open && this.answer) this.tableFold.lastElementChild.replaceChildren(waveTable(this.answer)); }

    /** Puts the delay at the first op of a class of the rank and step that are chosen. */
    async pickNode(node) {
      try {
        const op = await this.opOf(node);
        if (op === null) taut.say(`Rank ${this.rank.value} has no ${node.name} in step ${this.step.value}.`, true);
        else this.put({ op });
      } catch (error) { if (!C.stale(error)) taut.say(error.message, true); }
    }

    async opOf(node) {
      const axis = this.axis || (this.axis = await this.context.get("axis")), { rank, step } = this.wanted();
      const row = axis.rows.findIndex((one) => one.rank === rank), when = axis.steps.find((one) => one.step === step);
      if (row < 0 || !when) return null;
      const frame = await this.context.get("frame", { begin_ns: when.begin_ns, end_ns: when.end_ns, first_row: row, rows: 1, columns: 16, lines: 1 });
      if (!frame.ops) return null;
      const { ops } = frame, found = ops.op.map((_, k) => k).filter((k) => ops.row[k] === row && ops.begin_ns[k] >= when.begin_ns && [frame.names[ops.name[k]], family(frame.names[ops.name[k]])].includes(node.name));
      found.sort((a, b) => ops.begin_ns[a] - ops.begin_ns[b]);
      return found.length ? ops.op[found[0]] : null;
    }
  }

  const draw = async (root, context) => {
    const data = await context.get("structure");
    if (taut.source.delays) data.delays = await taut.source.delays();
    return context.signal.aborted ? undefined : new Structure(root, context, data).begin();
  };

  taut.view({
    name: "structure",
    title: "Structure",
    needs: "It is drawn from the operator graph of a traced run: `taut analyze` on traces of its ranks.",
    draw,
  });
})();
