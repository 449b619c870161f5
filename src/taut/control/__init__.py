"""Actions → relations: do the controllers work with each other or against each other? One file per relation."""
