/* Answers from inside the file; addresses are fragments. */
(() => {
  "use strict";

  const taut = window.taut;

  const bytes = (text) => {
    if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
    const raw = atob(text), out = new Uint8Array(raw.length);
    for (let k = 0; k < raw.length; k++) out[k] = raw.charCodeAt(k);
    return out;
  };
  const node = (name) => Array.from(document.querySelectorAll("script[data-packed]")).find((one) => one.dataset.packed === name) || null;
  const once = new Map();
  const kept = (name, make) => { if (!once.has(name)) once.set(name, make()); return once.get(name); };

  /** What is packed into the file, by name; null where it is not there. */
  taut.packed = {
    names: () => Array.from(document.querySelectorAll("script[data-packed]"), (one) => one.dataset.packed),
    bytes: (name) => { const found = node(name); return found && bytes(found.textContent); },
    json: (name) => kept(name, async () => {
      const short = node(`${name}.json`);
      if (short) return JSON.parse(short.textContent);
      const long = taut.packed.bytes(`${name}.json.zlib`);
      return long && JSON.parse(new TextDecoder().decode(await taut.inflated(long)));
    }),
  };

  const query = (params) => {
    const found = new URLSearchParams();
    for (const [key, value] of Object.entries(params || {}))
      for (const one of [value].flat()) if (one !== null && one !== undefined && one !== "") found.append(key, one);
    const text = found.toString();
    return text ? "?" + text : "";
  };

  /** What is not in the file: why, and the command that shows it. */
  const absent = (text, command) => Object.assign(new Error(text || "This is not in the file."), { status: 404, command });

  const list = (value) => (value === undefined || value === null || value === "" ? [] : [value].flat().map(String));
  const folder = async () => taut.quoted(((await card()) || { folder: "RUN" }).folder);

  /** The one run of the file: ``runs.json``, or what its first page says of it. */
  const card = async () => {
    const [found, first] = [await taut.packed.json("runs"), await taut.packed.json("overview")];
    const one = found ? found.runs[0] : first && first.run;
    return one ? { ...one, id: "file" } : null;
  };

  const listed = async () => {
    const one = await card();
    if (!one) throw absent();
    return { version: "file", runs: [one], refused: [] };
  };

  const timeline = () => kept("timeline", async () => {
    const [axis, data] = [await taut.packed.json("axis"), taut.packed.bytes("timeline")];
    if (!axis || !data) throw absent("The timeline is not in this file.", `taut serve ${await folder()}`);
    return new taut.PackedTimeline(data, axis);
  });

  /** A question as the answers are named: views/questions.py, ``canonical``. */
  const canonical = (params) => [
    ...list(params.fix).map((one) => "fix=" + one).sort((a, b) => (a < b ? -1 : a > b ? 1 : 0)), ...list(params.policy).map((one) => "policy=" + one),
    ...["work", "bandwidth", "gaps"].filter((key) => params[key] !== undefined && params[key] !== "" && Number(params[key]) !== 1).map((key) => `${key}=${Number(params[key])}`),
  ].join("&");

  /** What can be asked, and of factors which have an answer. */
  const asked = async () => {
    const packed = await stored("answers")(), gaps = Object.keys(packed.answers).filter((key) => key.startsWith("gaps=")).map((key) => Number(key.slice(5)));
    return { ...packed.questions, grid: { work: packed.work, bandwidth: packed.bandwidth, gaps: [...gaps, 1] } };
  };

  const answered = async (params) => {
    const packed = await taut.packed.json("answers"), found = packed && packed.answers[canonical(params)];
    if (!found) throw absent("The answer is not in this file.");
    return found;
  };

  /** A delay that was computed before: rank, step and length must fit, and no op be named but the one that was delayed. */
  const delayed = async (params) => {
    const waves = (await taut.packed.json("delays")) || [], ns = Math.round(Number(params.ms) * 1e6);
    const found = waves.find((wave) => wave.rank === Number(params.rank) && wave.step === Number(params.step) && wave.delay_ns === ns && [null, undefined, wave.op].includes(params.op));
    if (found) return found;
    const op = params.op === null || params.op === undefined ? "" : `,op=${params.op}`;
    throw absent(`A file replays nothing, and this delay was not computed before.`, `taut whatif ${await folder()} --delay rank=${params.rank},step=${params.step},ms=${params.ms}${op}`);
  };

  const explained = async (params) => {
    const found = await (await timeline()).op(params);
    if (found.detail) return found.detail;
    if (found.nothing) throw absent("Nothing is here.");
    throw absent(found.brief ? `${found.brief.words} Its path to its cause is not in this file; the app shows it:` : "No op of this place is in this file one by one; the app shows all of them:", `taut serve ${await folder()}`);
  };

  const stored = (name) => async () => {
    const found = await taut.packed.json(name);
    if (!found) throw absent(`This page is not in the file; the app shows it: taut serve ${await folder()}`);
    return found;
  };

  const ANSWERS = {
    runs: listed, axis: stored("axis"), frame: async (params) => (await timeline()).frame(params), op: explained, whatif: answered, delay: delayed,
    questions: asked,
  };

  taut.query = query;
  taut.source = {
    live: false,
    get: async (run, name, params) => (ANSWERS[name] || stored(name))(params || {}),
    bytes: async () => { throw absent(); },
    post: async () => { throw absent(); },
    timeline,
    /** Delays that the file holds, the first that is shown first. */
    delays: async () => ((await taut.packed.json("delays")) || []).map(({ rank, step, delay_ns }) => ({ rank, step, ms: delay_ns / 1e6 })),
    where: () => {
      const [view, search] = location.hash.replace(/^#\/?/, "").split("?");
      const params = {};
      for (const [key, value] of new URLSearchParams(search || "")) params[key] = key in params ? [params[key], value].flat() : value;
      return { run: "file", view: view || null, params };
    },
    /** The page that is shown where the address names none. */
    first: async () => ((await listed()).runs[0].views[0] || "overview"),
    href: (run, view, params) => `#/${view === "runs" ? "" : view}${query(params)}`,
  };
})();
