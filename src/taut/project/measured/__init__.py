"""From measurement to projection: a measured job at other scales."""
