/* What the two canvas pages share: sharp surfaces, patterns of states, a card at the cursor, short words, motion. */
(() => {
  "use strict";

  const taut = window.taut;
  const { el } = taut;

  const PROPERTY = {
    "compute": "compute", "slow compute": "slow", "communication": "communication", "copy": "copy", "fault wait": "fault",
    "jitter wait": "jitter", "structural wait": "structural", "gap wait": "gap", "unexplained wait": "unexplained",
    "host": "host", "idle": "idle",
  };
  const MEANING = {
    "compute": "works as long as its peers do", "slow compute": "works longer than its reference",
    "communication": "transfers, waiting taken out", "copy": "copies memory",
    "fault wait": "waits for somebody who is slow beyond ordinary variation",
    "jitter wait": "waits because of ordinary variation", "structural wait": "waits even when everybody is on time",
    "gap wait": "waits for somebody whom nothing kept busy", "unexplained wait": "waits, and nothing explains it",
    "host": "the host works", "idle": "nothing runs",
  };
  const TILE = 8;
  // Where a state has a line in its pattern, by place in a tile of 8 × 8: hue is never alone.
  const LINES = {
    "slow compute": (x, y) => (x + 2 * y) % 4 === 0,
    "copy": (x) => x % 4 === 0,
    "fault wait": (x, y) => (x + y) % 4 < 2,
    "jitter wait": (x, y) => (x - y + 8) % 8 < 2,
    "structural wait": (x, y) => y % 4 === 0,
    "gap wait": (x, y) => x % 4 === 1 && y % 4 === 1,
    "unexplained wait": (x, y) => (x + y) % 8 === 0 || (x - y + 8) % 8 === 0,
  };
  const WAIT = /wait$/;

  const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  function rgb(css) {
    probe.canvas.width = probe.canvas.height = 1;
    probe.fillStyle = css || "#888";
    probe.fillRect(0, 0, 1, 1);
    return [...probe.getImageData(0, 0, 1, 1).data].slice(0, 3);
  }
  const mixed = (a, b, share) => a.map((one, k) => Math.round(one * share + b[k] * (1 - share)));
  const packed = (c) => ((255 << 24) | (c[2] << 16) | (c[1] << 8) | c[0]) >>> 0;

  // Colours of a page, as numbers too.
  function palette() {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue("--" + name).trim();
    return {
      ink: of("ink"), muted: of("muted"), grid: of("grid"), paper: of("paper"), ground: of("ground"),
      accent: of("accent") || of("communication"), slow: taut.colour("slow"), of,
    };
  }

  // The pattern of a state as 64 pixels; a faint one where it is filtered out.
  function tile(state, colours, faint) {
    const paper = rgb(colours.paper), base = rgb(taut.colour(PROPERTY[state] || "idle"));
    const ink = rgb(colours.ink);
    const ground = WAIT.test(state) ? mixed(base, paper, 0.38) : base;
    const line = WAIT.test(state) ? mixed(base, ink, 0.9) : mixed(base, ink, 0.62);
    const has = LINES[state] || (() => false);
    const out = new Uint32Array(TILE * TILE);
    for (let y = 0; y < TILE; y++) {
      for (let x = 0; x < TILE; x++) {
        const colour = has(x, y) ? line : ground;
        out[y * TILE + x] = packed(faint ? mixed(colour, paper, 0.12) : colour);
      }
    }
    return out;
  }

  // A piece of a pattern for a legend.
  function swatch(pixels, width = 20, height = 12) {
    const canvas = el("canvas", { class: "swatch", width, height, "aria-hidden": "true" });
    const image = new ImageData(width, height), data = new Uint32Array(image.data.buffer);
    for (let k = 0; k < data.length; k++) {
      data[k] = pixels[(Math.floor(k / width) % TILE) * TILE + ((k % width) % TILE)];
    }
    canvas.getContext("2d").putImageData(image, 0, 0);
    return canvas;
  }

  // Makes a canvas as sharp as the screen; returns its size in CSS pixels.
  function fit(canvas, width, height) {
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    const [w, h] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
    if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
    canvas.style.width = width + "px";
    canvas.style.height = height + "px";
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    return { pen, ratio, width, height };
  }

  // A card at the cursor that stays on the screen.
  function card(parent) {
    const box = el("div", { class: "canvas-card", role: "presentation", hidden: true });
    parent.append(box);
    return {
      box,
      show(children, x, y) {
        box.replaceChildren(...children);
        box.hidden = false;
        const { width, height } = box.getBoundingClientRect();
        const left = x + 16 + width > window.innerWidth - 8 ? x - 16 - width : x + 16;
        const top = y + 16 + height > window.innerHeight - 8 ? y - 12 - height : y + 16;
        box.style.left = Math.max(8, left) + "px";
        box.style.top = Math.max(8, top) + "px";
      },
      hide() { box.hidden = true; },
    };
  }

  const widths = new Map();
  function textWidth(pen, text) {
    const key = pen.font + "\u0000" + text;
    if (!widths.has(key)) {
      if (widths.size > 20000) widths.clear();
      widths.set(key, pen.measureText(text).width);
    }
    return widths.get(key);
  }
  const cut = (text, keep) => { const head = Math.ceil(keep * 0.6); return text.slice(0, head) + "…" + text.slice(text.length - (keep - head)); };
  const cuts = new Map();
  // As much of a text as fits: its beginning and its end, because names differ in both; nothing where letters would not tell.
  function short(pen, text, width) {
    const whole = textWidth(pen, text);
    if (whole <= width) return text;
    const room = Math.floor(width / 4) * 4, key = pen.font + room + text;
    if (!cuts.has(key)) {
      if (cuts.size > 20000) cuts.clear();
      let keep = Math.min(text.length - 1, Math.floor(text.length * room / whole) + 1);
      while (keep >= 3 && pen.measureText(cut(text, keep)).width > room) keep -= 1;
      cuts.set(key, keep >= 3 ? cut(text, keep) : "");
    }
    return cuts.get(key);
  }
  // The same by letters, for words that stand in SVG or HTML.
  const middle = (text, most) => (text.length <= most ? text : cut(text, most - 1));

  const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
  // Calls draw(0…1) on every frame for a while, at once where people want no motion; returns what stops it.
  function motion(duration, draw) {
    if (still() || duration <= 0) { draw(1); return () => undefined; }
    const began = performance.now();
    let handle = requestAnimationFrame(function next(now) {
      const at = Math.min(1, Math.max(0, (now - began) / duration));
      draw(at);
      if (at < 1) handle = requestAnimationFrame(next);
    });
    return () => cancelAnimationFrame(handle);
  }

  // Draws at the next frame, however often it is asked to.
  function once(draw) {
    let asked = 0;
    return () => { if (!asked) asked = requestAnimationFrame(() => { asked = 0; draw(); }); };
  }

  function later(delay, run) {
    let handle = 0;
    const call = (...given) => { clearTimeout(handle); handle = setTimeout(() => run(...given), delay); };
    call.cancel = () => clearTimeout(handle);
    return call;
  }

  const PERFETTO = "https://ui.perfetto.dev";
  const PATIENCE_MS = 45000;

  /** Whether a window of Perfetto says that it listens. */
  const listening = (page, signal) => new Promise((found) => {
    const end = (answer) => { clearInterval(ping); clearTimeout(late); removeEventListener("message", heard); found(answer); };
    const ping = setInterval(() => page.postMessage("PING", PERFETTO), 100);
    const late = setTimeout(() => end(false), PATIENCE_MS);
    const heard = (event) => { if (event.origin === PERFETTO && event.source === page && event.data === "PONG") end(true); };
    addEventListener("message", heard);
    signal.addEventListener("abort", () => end(null));
  });

  /** Hands the raw ops of a run to Perfetto's page in this browser, after a question; saves them where it does not answer. */
  taut.perfetto = async (context) => {
    const said = ["The trace goes from this server into a window of ui.perfetto.dev, in this browser.", "Perfetto keeps it there; nothing is uploaded."];
    if (!(await taut.ask("Open the trace in Perfetto?", said, "open Perfetto"))) return;
    const page = window.open(PERFETTO);
    if (!page) { taut.say("The browser does not let a window open", true); return; }
    const buffer = await context.bytes("perfetto"), heard = await listening(page, context.signal);
    if (heard) page.postMessage({ perfetto: { buffer, title: taut.safe(context.card.name) } }, PERFETTO);
    if (heard !== false) return;
    taut.save("trace.pftrace", buffer, "application/octet-stream");
    taut.say("Perfetto did not answer: the trace is saved as a file to open there", true);
  };

  // What get() rejects with when a page is left or an answer is stale.
  const stale = (error) => error && error.name === "AbortError";

  const light = (c) => { const [r, g, b] = c.map((one) => (one / 255 <= 0.04045 ? one / 255 / 12.92 : ((one / 255 + 0.055) / 1.055) ** 2.4)); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  // Black or white, whichever can be read on a colour.
  const inkOn = (c) => (light(c) > 0.179 ? "#000000" : "#ffffff");

  taut.canvas = {
    times: [], inkOn,
    TILE, PROPERTY, MEANING, palette, rgb, mixed, packed, tile, swatch, fit, card,
    textWidth, short, middle, motion, once, later, still, stale,
  };
})();
