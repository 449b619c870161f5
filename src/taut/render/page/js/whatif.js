/* Not drawn yet. */
(() => {
  "use strict";

  const taut = window.taut;

  taut.view({
    name: "whatif",
    title: "What if",
    needs: "It is drawn from the operator graph of a traced run: `taut analyze` on traces of its ranks.",
    draw(root) {
      root.append(taut.el("h1", {}, "What if"), taut.empty("This page is not built yet."));
    },
  });
})();
