/* Answers from inside the file; addresses are fragments. */
(() => {
  "use strict";

  const taut = window.taut;

  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

  /** What is packed into the file, by name: JSON, or bytes. Null where it is not there. */
  taut.packed = {
    names: () => Array.from(document.querySelectorAll("script[data-packed]"), (node) => node.dataset.packed),
    text: (name) => {
      const node = taut.packed.node(name);
      return node && (node.type === "application/json" ? node.textContent : new TextDecoder().decode(bytes(node.textContent)));
    },
    json: (name) => { const text = taut.packed.text(name); return text === null ? null : JSON.parse(text); },
    bytes: (name) => { const node = taut.packed.node(name); return node && (node.type === "application/json" ? new TextEncoder().encode(node.textContent) : bytes(node.textContent)); },
    node: (name) => Array.from(document.querySelectorAll("script[data-packed]")).find((node) => node.dataset.packed === name) || null,
  };

  const query = (params) => {
    const found = new URLSearchParams();
    for (const [key, value] of Object.entries(params || {}))
      for (const one of [value].flat()) if (one !== null && one !== undefined && one !== "") found.append(key, one);
    const text = found.toString();
    return text ? "?" + text : "";
  };

  const absent = () => Object.assign(new Error("this is not in the file: open the run with `taut serve`"), { status: 404 });

  /** The one run of the file: ``runs.json``, or what its first page says of it. */
  const listed = () => {
    const [list, first] = [taut.packed.json("runs.json"), taut.packed.json("overview.json")];
    const card = list ? list.runs[0] : first && first.run;
    return card ? { version: "file", runs: [{ ...card, id: "file" }], refused: [] } : null;
  };

  taut.query = query;
  taut.source = {
    live: false,
    get: async (run, name, params) => {
      const found = name === "runs" ? listed() : taut.packed.json(`${name}${query(params)}.json`);
      if (found === null) throw absent();
      return found;
    },
    bytes: async () => { throw absent(); },
    post: async () => { throw absent(); },
    where: () => {
      const [view, search] = location.hash.replace(/^#\/?/, "").split("?");
      const params = {};
      for (const [key, value] of new URLSearchParams(search || "")) params[key] = key in params ? [params[key], value].flat() : value;
      return { run: "file", view: view || "overview", params };
    },
    href: (run, view, params) => `#/${view === "runs" ? "overview" : view}${query(params)}`,
  };
})();
