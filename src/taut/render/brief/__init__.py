"""The Architecture Risk Briefing: one document for those who decide, as HTML, PDF or Markdown."""
