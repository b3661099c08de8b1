"""What imports, programs and distributions are called elsewhere. Data only; facts of Debian 12 and PyPI."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = [
    "APT_OF_DISTRIBUTION",
    "APT_OF_PROGRAM",
    "BASE_PROGRAMS",
    "DISTRIBUTION_OF_MODULE",
    "NODE_BUILTINS",
    "NPM_OF_PROGRAM",
    "WELL_KNOWN",
]

DISTRIBUTION_OF_MODULE: Mapping[str, str] = {
    "attr": "attrs", "bs4": "beautifulsoup4", "Bio": "biopython", "cairo": "pycairo",
    "Crypto": "pycryptodome", "cv2": "opencv-python-headless", "dateutil": "python-dateutil",
    "docx": "python-docx", "docx2txt": "docx2txt", "dotenv": "python-dotenv", "fitz": "PyMuPDF",
    "git": "GitPython", "github": "PyGithub", "googleapiclient": "google-api-python-client",
    "jose": "python-jose", "jwt": "PyJWT", "kubernetes": "kubernetes", "lxml": "lxml",
    "magic": "python-magic", "markdown": "Markdown", "MySQLdb": "mysqlclient", "nacl": "PyNaCl",
    "odf": "odfpy", "OpenSSL": "pyOpenSSL", "PIL": "pillow", "pkg_resources": "setuptools",
    "pptx": "python-pptx", "psycopg2": "psycopg2-binary", "pymupdf": "PyMuPDF",
    "pythoncom": "pywin32", "serial": "pyserial", "skimage": "scikit-image", "sklearn": "scikit-learn",
    "slugify": "python-slugify", "telegram": "python-telegram-bot", "usb": "pyusb",
    "websocket": "websocket-client", "Xlib": "python-xlib", "yaml": "PyYAML", "zmq": "pyzmq",
    "ruamel": "ruamel.yaml", "OpenGL": "PyOpenGL", "tlz": "toolz", "umap": "umap-learn",
    "pypdfium2": "pypdfium2", "reportlab": "reportlab", "win32com": "pywin32", "dns": "dnspython",
    "faiss": "faiss-cpu", "ffmpeg": "ffmpeg-python", "levenshtein": "Levenshtein", "snappy":
    "python-snappy", "socks": "PySocks", "speech_recognition": "SpeechRecognition", "discord":
    "discord.py", "flask_cors": "Flask-Cors", "imblearn": "imbalanced-learn", "mpl_toolkits":
    "matplotlib", "pylab": "matplotlib", "unidiff": "unidiff", "youtube_dl": "youtube-dl", "yt_dlp":
    "yt-dlp", "xdg": "pyxdg", "zoneinfo_data": "tzdata", "mistune": "mistune", "frontmatter":
    "python-frontmatter", "jieba": "jieba", "pypinyin": "pypinyin", "openai": "openai", "wx":
    "wxPython", "gi": "PyGObject", "igraph": "igraph", "barcode": "python-barcode", "pyzbar": "pyzbar",
    "markdown_it": "markdown-it-py", "rest_framework": "djangorestframework", "sentence_transformers":
    "sentence-transformers", "pydantic_settings": "pydantic-settings", "imageio_ffmpeg":
    "imageio-ffmpeg", "pdf2image": "pdf2image", "youtube_transcript_api": "youtube-transcript-api",
    "pil": "pillow", "msoffcrypto": "msoffcrypto-tool", "openbabel": "openbabel-wheel",
}  # fmt: skip

WELL_KNOWN = frozenset(
    [
        "aiofiles", "aiohttp", "altair", "anthropic", "anyio", "apscheduler", "arrow",
        "asyncpg", "attrs", "babel", "beautifulsoup4", "biopython", "black", "bleach", "bokeh",
        "boto3", "botocore", "cairosvg", "camelot-py", "celery", "certifi", "chardet",
        "charset-normalizer", "click", "colorama", "cryptography", "cssselect", "cycler",
        "dash", "dask", "datasets", "deepdiff", "defusedxml", "django", "docutils", "docxtpl",
        "duckdb", "ebooklib", "einops", "emoji", "et-xmlfile", "extract-msg", "faker",
        "fastapi", "fastmcp", "feedparser", "filelock", "flask", "fonttools", "fpdf", "fpdf2",
        "fsspec", "gensim", "geopandas", "geopy", "google-api-python-client", "gradio",
        "graphviz", "h5py", "holoviews", "html2text", "html5lib", "httpx", "huggingface-hub",
        "hypothesis", "icalendar", "imageio", "itsdangerous", "jinja2", "joblib", "json5",
        "jsonpath-ng", "jsonschema", "keyring", "langchain", "librosa", "litellm", "loguru",
        "lxml", "markdownify", "markdown", "markitdown", "markupsafe", "marshmallow",
        "matplotlib", "mcp", "mistletoe", "more-itertools", "moviepy", "mutagen", "nbformat",
        "networkx", "nibabel", "nltk", "notion-client", "numba", "numpy", "odfpy", "ollama",
        "openai", "openpyxl", "orjson", "packaging", "pandas", "paramiko", "pdfkit",
        "pdfminer.six", "pdfplumber", "peewee", "pendulum", "pexpect", "phonenumbers",
        "pikepdf", "pillow", "pint", "plotly", "playwright", "polars", "prettytable",
        "prompt-toolkit", "psutil", "psycopg", "pyarrow", "pydantic", "pydantic-settings",
        "pydub", "pygame", "pygments", "pymongo", "pymupdf", "pynacl", "pypandoc", "pyparsing",
        "pypdf", "pypdf2", "pyperclip", "pyproj", "pyqt5", "pyqt6", "pyserial", "pytest",
        "pytesseract", "python-dateutil", "python-docx", "python-dotenv", "python-pptx",
        "python-slugify", "pytz", "pywavelets", "pyyaml", "pyzmq", "qrcode", "rapidfuzz",
        "rasterio", "rdkit", "redis", "regex", "reportlab", "requests", "requests-oauthlib",
        "rich", "ruamel.yaml", "ruff", "scanpy", "scikit-image", "scikit-learn", "scipy",
        "scrapy", "seaborn", "selenium", "sentence-transformers", "setuptools", "shapely",
        "simplejson", "six", "slack-sdk", "sortedcontainers", "soundfile", "spacy",
        "sqlalchemy", "starlette", "statsmodels", "svgwrite", "sympy", "tabulate", "tenacity",
        "tensorflow", "tiktoken", "tinycss2", "tokenizers", "toml", "tomli", "tomlkit", "toolz",
        "torch", "torchvision", "tornado", "tqdm", "transformers", "trafilatura", "typer",
        "typing-extensions", "tzdata", "ujson", "unidecode", "urllib3", "uvicorn", "wand",
        "watchdog", "weasyprint", "websockets", "werkzeug", "wordcloud", "xarray", "xgboost",
        "lightgbm", "xlrd", "xlsxwriter", "xlwt", "xmltodict", "yfinance", "zstandard",
        "tushare", "akshare", "jieba", "pypinyin", "snownlp", "cn2an", "zhconv", "pyecharts",
        "gitpython", "pygithub", "python-magic", "opencv-python-headless", "pdf2image",
        "imageio-ffmpeg", "yt-dlp", "youtube-dl", "ffmpeg-python", "python-telegram-bot",
        "python-frontmatter", "markdown-it-py", "pyjwt", "dnspython", "odfpy", "docx2txt",
        "msoffcrypto-tool", "speechrecognition", "levenshtein", "scikit-image", "umap-learn",
        "faiss-cpu", "pypdfium2", "pyzbar", "python-barcode", "psycopg2-binary", "mysqlclient",
        "websocket-client", "djangorestframework", "flask-cors", "pycryptodome", "mistune",
        "unidiff", "pysocks", "python-snappy", "pycairo", "igraph", "imbalanced-learn",
        "youtube-transcript-api",
    ]
)  # fmt: skip
"""Names in PEP 503 form under which PyPI holds what everybody means. Anything else that is imported is only a
guess, and a guessed name is how a stranger's package gets installed: suggested, never on by itself."""

APT_OF_PROGRAM: Mapping[str, str] = {
    "7z": "p7zip-full", "aspell": "aspell", "bc": "bc", "biber": "biber", "blender": "blender",
    "calibre": "calibre", "chromium": "chromium", "cloc": "cloc", "cmake": "cmake", "convert": "imagemagick",
    "csvtool": "csvtool", "curl": "curl", "ddjvu": "djvulibre-bin", "dot": "graphviz", "ebook-convert":
    "calibre", "espeak": "espeak", "espeak-ng": "espeak-ng", "exiftool": "libimage-exiftool-perl",
    "fc-list": "fontconfig", "fd": "fd-find", "ffmpeg": "ffmpeg", "ffprobe": "ffmpeg", "file": "file",
    "fish": "fish", "g++": "g++", "gcc": "gcc", "gdal_translate": "gdal-bin", "gdalinfo": "gdal-bin",
    "gh": "gh", "ghostscript": "ghostscript", "gifsicle": "gifsicle", "git": "git", "git-lfs": "git-lfs",
    "gnuplot": "gnuplot", "go": "golang-go", "gs": "ghostscript", "hunspell": "hunspell", "identify":
    "imagemagick", "img2pdf": "img2pdf", "inkscape": "inkscape", "java": "default-jre-headless", "javac":
    "default-jdk-headless", "jpegoptim": "jpegoptim", "jq": "jq", "julia": "julia", "latexmk": "latexmk",
    "libreoffice": "libreoffice", "lua": "lua5.4", "lualatex": "texlive-luatex", "lynx": "lynx", "magick":
    "imagemagick", "make": "make", "mediainfo": "mediainfo", "mogrify": "imagemagick", "montage":
    "imagemagick", "mysql": "default-mysql-client", "mutool": "mupdf-tools", "nc": "netcat-openbsd",
    "nmap": "nmap", "ocrmypdf": "ocrmypdf", "optipng": "optipng", "pandoc": "pandoc", "pdfinfo":
    "poppler-utils", "pdfimages": "poppler-utils", "pdfseparate": "poppler-utils", "pdftk": "pdftk-java",
    "pdftocairo": "poppler-utils", "pdftohtml": "poppler-utils", "pdftoppm": "poppler-utils", "pdftotext":
    "poppler-utils", "pdfunite": "poppler-utils", "pdfattach": "poppler-utils", "pdffonts":
    "poppler-utils", "pdflatex": "texlive-latex-base", "php": "php-cli", "pngquant": "pngquant",
    "potrace": "potrace", "psql": "postgresql-client", "qpdf": "qpdf", "rclone": "rclone", "redis-cli":
    "redis-tools", "rg": "ripgrep", "ripgrep": "ripgrep", "Rscript": "r-base-core", "R": "r-base-core",
    "rsvg-convert": "librsvg2-bin", "rsync": "rsync", "ruby": "ruby", "shellcheck": "shellcheck", "socat":
    "socat", "soffice": "libreoffice", "sox": "sox", "sqlite3": "sqlite3", "ssh": "openssh-client",
    "scp": "openssh-client", "svgo": "node-svgo", "tesseract": "tesseract-ocr", "tidy": "tidy", "tmux": "tmux",
    "tree": "tree", "unrar": "unrar-free", "unzip": "unzip", "wget": "wget", "wkhtmltopdf": "wkhtmltopdf",
    "xelatex": "texlive-xetex", "xmllint": "libxml2-utils", "xsltproc": "xsltproc", "xvfb-run": "xvfb",
    "xz": "xz-utils", "zip": "zip", "zsh": "zsh", "zstd": "zstd", "tclsh": "tcl", "yq": "yq",
    "antiword": "antiword", "catdoc": "catdoc", "unoconv": "unoconv", "unrtf": "unrtf", "cwebp": "webp",
    "dwebp": "webp", "parallel": "parallel", "entr": "entr", "fzf": "fzf", "bat": "bat", "plantuml":
    "plantuml", "asciidoctor": "asciidoctor", "lilypond": "lilypond", "openscad": "openscad", "obabel":
    "openbabel", "samtools": "samtools", "bcftools": "bcftools", "bedtools": "bedtools", "blastn":
    "ncbi-blast+", "adb": "adb", "cargo": "cargo", "rustc": "rustc", "expect": "expect", "gpg": "gnupg",
    "whois": "whois", "dig": "dnsutils", "ping": "iputils-ping", "ip": "iproute2",
    "ps2pdf": "ghostscript", "pdfcrop": "texlive-extra-utils",
}  # fmt: skip

NPM_OF_PROGRAM: Mapping[str, str] = {
    "bun": "bun", "bunx": "bun", "pnpm": "pnpm", "yarn": "yarn", "tsx": "tsx", "ts-node": "ts-node",
    "tsc": "typescript", "mmdc": "@mermaid-js/mermaid-cli", "prettier": "prettier", "eslint": "eslint",
    "esbuild": "esbuild", "vite": "vite", "marp": "@marp-team/marp-cli", "wrangler": "wrangler",
    "vercel": "vercel", "netlify": "netlify-cli", "markdownlint": "markdownlint-cli",
    "lighthouse": "lighthouse", "playwright-cli": "@playwright/cli",
}  # fmt: skip

APT_OF_DISTRIBUTION: Mapping[str, tuple[str, ...]] = {
    "pdf2image": ("poppler-utils",), "pytesseract": ("tesseract-ocr",), "pydub": ("ffmpeg",),
    "ffmpeg-python": ("ffmpeg",), "pypandoc": ("pandoc",), "graphviz": ("graphviz",),
    "pygraphviz": ("graphviz", "libgraphviz-dev"), "python-magic": ("libmagic1",),
    "cairosvg": ("libcairo2",), "weasyprint": ("libpango-1.0-0", "libpangoft2-1.0-0"),
    "pyzbar": ("libzbar0",), "opencv-python": ("libgl1", "libglib2.0-0"), "pdfkit": ("wkhtmltopdf",),
    "wand": ("imagemagick", "libmagickwand-6.q16-6"), "ocrmypdf": ("ocrmypdf",),
    "soundfile": ("libsndfile1",), "camelot-py": ("ghostscript",), "tabula-py":
    ("default-jre-headless",), "gitpython": ("git",), "pycairo": ("libcairo2-dev", "pkg-config"),
    "mysqlclient": ("default-libmysqlclient-dev",), "librosa": ("libsndfile1",),
    "img2pdf": ("libjpeg62-turbo",),
}  # fmt: skip

BASE_PROGRAMS = frozenset(
    [
        "[", "awk", "base64", "basename", "bash", "bunzip2", "bzip2", "cat", "chgrp", "chmod",
        "chown", "clear", "cmp", "comm", "cp", "cut", "date", "dd", "df", "diff", "dirname",
        "du", "echo", "egrep", "env", "expand", "expr", "false", "fgrep", "find", "fold",
        "getent", "grep", "groups", "gunzip", "gzip", "head", "hostname", "id", "install",
        "join", "kill", "ln", "locale", "ls", "mawk", "md5sum", "mkdir", "mkfifo", "mktemp",
        "mount", "mv", "nice", "nl", "node", "nohup", "npm", "npx", "nproc", "od", "paste",
        "perl", "pidof", "pip", "pip3", "pgrep", "pkill", "printenv", "printf", "ps", "python",
        "python3", "pwd", "readlink", "realpath", "rm", "rmdir", "sed", "seq", "setsid", "sh",
        "sha1sum", "sha256sum", "shuf", "sleep", "sort", "split", "stat", "stdbuf", "strings",
        "stty", "su", "sudo", "sync", "tac", "tail", "tar", "tee", "test", "timeout", "touch",
        "tr", "true", "truncate", "tty", "uname", "uniq", "uv", "uvx", "wc", "which", "who",
        "whoami", "xargs", "yes", "dpkg", "dpkg-query", "apt", "apt-get", "apt-cache",
    ]
)  # fmt: skip
"""What the base template has: Debian's essential packages, Python with uv, and Node."""

NODE_BUILTINS = frozenset(
    [
        "assert", "async_hooks", "buffer", "child_process", "cluster", "console", "constants",
        "crypto", "dgram", "diagnostics_channel", "dns", "domain", "events", "fs", "http",
        "http2", "https", "inspector", "module", "net", "os", "path", "perf_hooks", "process",
        "punycode", "querystring", "readline", "repl", "stream", "string_decoder", "sys",
        "timers", "tls", "trace_events", "tty", "url", "util", "v8", "vm", "wasi",
        "worker_threads", "zlib", "test", "sqlite", "sea",
    ]
)  # fmt: skip
