"""Which of Debian's packages have man pages, help, books or catalogues in English and German."""

# Chosen on Debian 12: those of about 700 that have German text, or the English original of some. A
# pattern stands for names that have a version in them.
LIST = """
    accerciser acl adduser aisleriot akregator alsa-utils anacron anjuta-common apt apt-doc
    apt-listbugs apt-listchanges apt-utils aptitude-common ardour-data ark artikulate aspell
    atril-common attr audacity-data autopoint baobab bash binutils-common bison bleachbit blinken
    bluedevil bluefish-data blueman bomber bovo brasero-common bsdextrautils bsdgames bsdutils
    btrfs-progs bzip2 caja-common calligra-data calligraplan calligrasheets-data calligrawords-data
    cantor catfish cervisia cheese-common cinnamon-l10n claws-mail-i18n clisp colord-data coreutils
    cpio cron cryptsetup cryptsetup-bin cups cups-bsd cups-client cups-daemon darktable dasher-data
    debconf debconf-i18n debconf-utils debhelper debian-edu-doc-de debian-edu-doc-en debian-faq
    debian-faq-de debian-handbook debian-history debian-reference-de debian-reference-en debianutils
    debmake-doc deborphan deja-dup deluge-common developers-reference developers-reference-de
    devhelp-common devscripts dia-common diffutils digikam-data dino-im-common dolphin dosfstools
    dpkg dpkg-dev dragonplayer drkonqi e2fsprogs easytag ed eject engrampa-common eog eom-common
    epiphany-browser-data evince-common evolution-common evolution-data-server-common exif fdisk
    file file-roller filelight filezilla-common findutils five-or-more flatpak flex four-in-a-row
    freeciv-data gajim galculator gawk gcc-[0-9][0-9]-locales geany-common gedit-common
    genius-common gettext gettext-base ghex ghostscript gigolo gimp-data gimp-help-de gimp-help-en
    git gitg glabels-data glade gnome-applets-data gnome-boxes gnome-builder gnome-calculator
    gnome-characters gnome-chess gnome-clocks gnome-contacts gnome-control-center-data
    gnome-dictionary gnome-disk-utility gnome-flashback-common gnome-keyring gnome-klotski
    gnome-logs gnome-mahjongg gnome-maps gnome-mines gnome-music gnome-nettool gnome-nibbles
    gnome-panel-data gnome-photos gnome-power-manager gnome-robots gnome-session-common
    gnome-settings-daemon-common gnome-shell-common gnome-software-common gnome-subtitles
    gnome-sudoku gnome-system-monitor gnome-taquin gnome-terminal-data gnome-tetravex gnome-tweaks
    gnome-user-docs gnome-weather gnucash-common gnucash-docs gnuchess gnumed-client gnumeric-common
    gnupg-l10n goobox gpodder gramps granatier grep grisbi-common groff groff-base grub-common
    grub2-common gsettings-desktop-schemas gstreamer1.0-plugins-good gthumb-data gummi gvfs-common
    gwenview gzip hamster-time-tracker hexchat-common hitori hostname hugin-data hunspell iagno
    icedax indent info init-system-helpers inkscape install-info installation-guide-amd64 iptables
    iso-codes juk kaddressbook kaffeine kajongg kalarm kalzium-data kamoso kapman karbon kate*-data
    katomic kbackup kbd kblackbox kblocks kbounce kbreakout kbruch kcachegrind kcalc kcharselect
    kde-cli-tools-data kde-config-sddm kde-spectacle kdebugsettings kdenetwork-filesharing
    kdepim-addons kdepim-runtime kdeplasma-addons-data kdevelop-l10n kdf kdiamond kdiff3-doc
    kdoctools[0-9] kexi-data kfind kfloppy kfourinline kgeography-data kget kgoldrunner kgpg
    khelpcenter khotkeys-data kicad kid3-core kig kigo kile-doc killbots kimagemapeditor kinfocenter
    kio kio-extras-data kiriki kiten kjumpingcube klickety klines kmag kmahjongg kmail kmenuedit
    kmines kmix kmod kmousetool kmouth kmplot kmymoney kmymoney-common knavalbattle knetwalk knights
    knotes kolf kollision kolourpaint kompare konqueror konquest konsole konsolekalendar kontact
    konversation-data korganizer kpat kphotoalbum krdc kreversi krfb krita-l10n kronometer kruler
    krusader kscreen kshisen ksirk ksnakeduel kspaceduel ksquares ksudoku kteatime ktimer
    ktorrent-data ktouch-data kturtle kubrick kwalletmanager kwave kwin-data kwordquiz kwrite
    labplot-data less lftp libblkid-dev libc-bin libc-l10n libfm-data libglib2.0-data
    libgnomekbd-common libgnutls30 libgphoto2-l10n libgstreamer1.0-0 libgtk-3-common libgtk-4-common
    libgtk2.0-common libkf[0-9]configwidgets-data libkf[0-9]i18n-data libkf[0-9]kdelibs4support-data
    libkf[0-9]khtml-data libkf[0-9]service-data libkf[0-9]wallet-data libkf[0-9]xmlgui-data
    libnss-myhostname libnss-mymachines libnss-resolve libnss-systemd libpam-systemd
    libreoffice-help-de libreoffice-help-en-us libreoffice-l10n-de libsane-common libsoup2.4-common
    libvirt-l10n libwnck-3-common liferea-data lightsoff locales login lokalize lxpanel-data
    lxsession-data lyx-common maint-guide maint-guide-de make man-db manpages manpages-de
    manpages-de-dev manpages-dev mate-applets-common mate-calc-common mate-control-center-common
    mate-media-common mate-panel-common mate-power-manager-common mate-screensaver-common
    mate-session-manager mate-system-monitor-common mate-terminal-common mate-user-guide
    mate-utils-common meld mercurial-common modemmanager mount mousepad mtools mutt mutter-common
    nano nautilus-data ncal ncurses-bin net-tools netpbm network-manager network-manager-gnome
    nfs-common nfs-kernel-server nmap okteta okular openssh-client openssh-server orca p11-kit
    packagekit pan parley-data parole parted passwd pavucontrol pcmanfm perl-base phpmyadmin picmi
    pidgin-data pim-data-exporter pim-sieve-editor pitivi planner-data plasma-desktop-data
    plasma-discover-common plasma-nm plasma-pa plasma-workspace-data pluma-common po-debconf po4a
    poedit-common postgresql-[0-9][0-9] postgresql-client-[0-9][0-9] powerdevil-data procps psmisc
    psutils pulseaudio python3-django quadrapassel quota r-base-core recode recutils rfkill
    rhythmbox-data ristretto rkward-data rocs sane-utils seahorse sed shared-mime-info sharutils
    shotwell-common simple-scan skanlite skrooge-common sound-juicer sphinx-common step
    subtitlecomposer subversion sudo sweeper swell-foop synaptic sysstat systemd systemd-boot
    systemd-container systemd-coredump systemd-homed systemd-journal-remote systemd-oomd
    systemd-resolved systemd-sysv systemd-timesyncd systemd-userdbd systemsettings tali tar
    tellico-data tellico-doc texinfo thinkfan thunar-data totem-common tracker tracker-extract
    transmission-gtk udev usbutils util-linux util-linux-extra util-linux-locales uuid-dev
    uuid-runtime vim-runtime vinagre vlc-l10n vlock vorbis-tools wdiff weechat-core
    wesnoth-1.[0-9][0-9]-data wget whois wodim wordpress-l10n wxhexeditor wxmaxima x11-apps
    x11-xserver-utils xboard xfburn xfce4-notifyd xfce4-panel xfce4-power-manager-data
    xfce4-screenshooter xfce4-session xfce4-settings xfce4-taskmanager xfce4-terminal
    xfdesktop4-data xfsprogs xfwm4 xournal xournalpp xz-utils yakuake yelp zenity-common zstd
"""
PACKAGES: tuple[str, ...] = tuple(LIST.split())
