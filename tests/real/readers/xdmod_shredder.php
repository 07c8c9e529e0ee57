<?php
// Open XDMoD's shredder of Slurm. In: resource, and lines as sacct prints them; out: the rows for its table, and what it
// said about the lines that it left out. Of XDMoD only the classes that parse are loaded: database, log, and configuration
// are those below.

namespace CCR\DB {
    interface iDatabase {}
}

namespace Psr\Log {
    interface LoggerInterface {}
}

namespace CCR {
    class Log implements \Psr\Log\LoggerInterface
    {
        public static array $said = [];

        public static function singleton(string $name): Log
        {
            return new Log();
        }

        public function __call(string $level, array $given): void
        {
            if (!in_array($level, ['debug', 'info', 'notice'], true)) {
                self::$said[] = "$level: " . json_encode($given[0]);
            }
        }
    }
}

namespace Configuration {
    class XdmodConfiguration
    {
        public static function assocArrayFactory(string $file, string $folder, ?object $logger = null): array
        {
            return [['resource' => RESOURCE, 'name' => RESOURCE, 'timezone' => 'UTC']];
        }
    }
}

namespace xd_utilities {
    function string_begins_with(string $text, string $begin): bool
    {
        return str_starts_with($text, $begin);
    }
}

namespace {
    class Table implements \CCR\DB\iDatabase
    {
        public array $rows = [];

        public function query(string $statement): array
        {
            return [];
        }

        public function insert(string $statement, array $values): void
        {
            preg_match('/\(([^)]*)\) VALUES/', $statement, $columns);
            $this->rows[] = array_combine(explode(', ', $columns[1]), $values);
        }
    }

    spl_autoload_register(function (string $class): void {
        require getenv('SOURCE') . '/classes/' . strtr($class, '\\', '/') . '.php';
    });
    date_default_timezone_set('UTC');
    $given = json_decode(stream_get_contents(STDIN), true);
    define('RESOURCE', $given['resource']);
    define('CONFIG_DIR', '');
    $table = new Table();
    $shredder = new \OpenXdmod\Shredder\Slurm($table);
    $shredder->setResource(RESOURCE);
    foreach ($given['lines'] as $line) {
        $shredder->shredLine($line);
    }
    echo json_encode(['rows' => $table->rows, 'said' => \CCR\Log::$said]);
}
