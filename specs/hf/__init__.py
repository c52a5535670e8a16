"""From a Hugging Face `config.json` to a spec: no torch, no transformers, no weights.

`reader` loads the file, `families` say per model type which fields they read and how layers follow from them,
`document` writes the YAML and `importing` puts these together.
"""
