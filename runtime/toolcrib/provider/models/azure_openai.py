"""OpenAI's chat completions as Azure OpenAI serves them: by deployment, at the endpoint of a resource."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import parse_qs, quote

from toolcrib.core.errors import ConfigurationError
from toolcrib.provider.models.base_url import address_of
from toolcrib.provider.models.http_client import Service
from toolcrib.provider.models.openai_chat import OpenAIChat

API_VERSION: Final = "2024-10-21"
"""The version of Azure's API that is asked unless the address names another one."""


class AzureOpenAI(OpenAIChat):
    """A model that is deployed on Azure OpenAI.

    Args:
        model: The name of the deployment.
        base_url: The endpoint of the resource, such as `https://NAME.openai.azure.com`. `?api-version=` behind it names
            another version of the API than 2024-10-21.
        **options: As `OpenAIChat` takes them.

    Raises:
        ConfigurationError: `missing_model`; `invalid_base_url`, also where none is given.
    """

    SERVICE = Service("Azure OpenAI", "", "AZURE_OPENAI_API_KEY", "api-key", "")

    def __init__(self, *, model: str, base_url: str = "", **options: Any) -> None:
        if not base_url:
            message = "Azure OpenAI has no address of its own"
            hint = "write the endpoint of the resource as `base_url`, such as `https://NAME.openai.azure.com`"
            raise ConfigurationError(message, code="invalid_base_url", hint=hint)
        at = address_of(base_url)
        query = [at.query] if at.query else []
        if "api-version" not in parse_qs(at.query):
            query.append(f"api-version={API_VERSION}")
        deployment = f"{at.origin}{at.path}/openai/deployments/{quote(model, safe='')}"
        super().__init__(model=model, base_url=f"{deployment}?{'&'.join(query)}", **options)
