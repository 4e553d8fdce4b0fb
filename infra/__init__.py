"""Set-up, local services and images: what surrounds the library. No job imports it."""
