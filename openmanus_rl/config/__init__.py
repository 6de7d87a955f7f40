"""The one typed tree of a run: schema, presets, `key=value` overrides."""
