"""Pages of the web app, and of one file to share: HTML, CSS and scripts that draw what ``taut.views`` computes."""
