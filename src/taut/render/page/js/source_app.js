/* Answers from the server that serves the page; addresses are paths. */
(() => {
  "use strict";

  const taut = window.taut;

  const query = (params) => {
    const found = new URLSearchParams();
    for (const [key, value] of Object.entries(params || {}))
      for (const one of [value].flat()) if (one !== null && one !== undefined && one !== "") found.append(key, one);
    const text = found.toString();
    return text ? "?" + text : "";
  };

  /** A refusal of the server, as its one line. */
  const refused = async (answer) => {
    let text = `${answer.status} ${answer.statusText}`.trim();
    try { text = (await answer.json()).error || text; } catch { /* no JSON: the status says it */ }
    return Object.assign(new Error(text), { status: answer.status });
  };

  const asked = async (address, options) => {
    const answer = await fetch(address, options);
    if (!answer.ok) throw await refused(answer);
    return answer;
  };

  const address = (run, name) => (run ? `/api/runs/${encodeURIComponent(run)}/${name}` : `/api/${name}`);

  taut.query = query;
  taut.source = {
    live: true,
    get: async (run, name, params, signal) => (await asked(address(run, name) + query(params), { signal })).json(),
    bytes: async (run, name, params, signal) => (await asked(address(run, name) + query(params), { signal })).arrayBuffer(),
    post: async (run, name, body, signal) =>
      (await asked(address(run, name), { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal })).json(),

    /** Where the page is: {run, view, params}. */
    where: () => {
      const [, first, run, view] = location.pathname.split("/");
      const params = {};
      for (const [key, value] of new URLSearchParams(location.search))
        params[key] = key in params ? [params[key], value].flat() : value;
      if (first === "live") return { run: null, view: "live", params };
      return first === "run" && run ? { run: decodeURIComponent(run), view: view || "overview", params } : { run: null, view: "runs", params };
    },
    href: (run, view, params) => (view === "live" ? "/live" : run && view !== "runs" ? `/run/${encodeURIComponent(run)}/${view}` : "/") + query(params),
  };
})();
