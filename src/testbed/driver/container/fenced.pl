#!/usr/bin/perl
# Becomes a program that acts on a cluster, if the generation of the lease still has it. The program inherits the
# fence's lock (see fence.py) and holds it for as long as it runs. Perl, since it starts in a few milliseconds.
# Usage: fenced.pl FENCE-FOLDER GENERATION PROGRAM [ARGUMENT...]
use strict;
use warnings;

my ($folder, $generation, @command) = @ARGV;
# Descriptors up to this one stay open in the program.
$^F = 1023;

sub refuse { print STDERR "infrabed: fenced off: $_[0]\n"; exit 76 }

open my $lock, '<', "$folder/lock" or refuse("the cluster of generation $generation is gone");
# 1 is LOCK_SH.
flock $lock, 1 or die "infrabed: $folder/lock cannot be locked: $!\n";
{
  local $^F = 2;
  open my $file, '<', "$folder/generation" or refuse("the cluster of generation $generation is gone");
  chomp(my $now = <$file> // '');
  close $file;
  refuse("the fence says \"$now\", not \"live $generation\"") if $now ne "live $generation";
}
# Where a test stops this process between the check and the act.
kill 'STOP', $$ if ($ENV{INFRABED_FAILPOINT} // '') eq 'stop:container.fenced#1';
exec { $command[0] } @command or do { print STDERR "$command[0]: $!\n"; exit 127 };
