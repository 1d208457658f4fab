"""Import of OpenAPI descriptions: Swagger 2 and OpenAPI 3.0, 3.1 and 3.2."""

from toolcrib.formats.openapi_import.operations import OpenApiOptions, tools_of_openapi, version_of
from toolcrib.formats.openapi_import.references import Refused

__all__ = ["OpenApiOptions", "Refused", "tools_of_openapi", "version_of"]
