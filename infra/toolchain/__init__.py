"""Where programs, jars and classes come from: Go modules, Maven, javac and Debian packages."""
