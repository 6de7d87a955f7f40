"""WebShop: search a shop of ten thousand products and buy what an instruction asks for."""

from openmanus_rl.envs.webshop.world import WebShop

__all__ = ["WebShop"]
