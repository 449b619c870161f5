"""What joins the ranks: topologies, flows, transfers, equipment."""
