"""The web app: run folders served to a browser, by an allow-list of routes behind one guard."""
