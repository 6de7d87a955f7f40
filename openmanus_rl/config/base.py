"""What every section of the config, and every algorithm's options, is made of."""

from pydantic import BaseModel, ConfigDict


class Config(BaseModel):
    """A typed section: an unknown key is an error, a field's docstring is its help, and nothing changes once read."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, use_attribute_docstrings=True)
